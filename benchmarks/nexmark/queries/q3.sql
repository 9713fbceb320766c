-- Who sells in category 10 and lives in one of three states, and which auction it is.
-- Conditions on one side stand in ON: they are applied before the join, which then keeps fewer rows.
CREATE VIEW q3 AS
SELECT person.name, person.city, person.state, auction.id
FROM auction
JOIN person WITHIN FOREVER
  ON auction.seller = person.id AND auction.category = 10 AND person.state IN ('OR', 'ID', 'CA');
