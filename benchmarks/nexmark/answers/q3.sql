-- Who sells in category 10 and lives in one of three states, and which auction it is.
SELECT person.name, person.city, person.state, auction.id
FROM auction JOIN person ON auction.seller = person.id
WHERE auction.category = 10 AND person.state IN ('OR', 'ID', 'CA')
