-- For each window of 10 seconds: who registered in it and opened an auction in it.
CREATE VIEW q8 AS
WITH registered AS (
  SELECT id, name, window.start AS starttime
  FROM person
  GROUP BY window(dateTime, '10 seconds'), id, name
),
selling AS (
  SELECT seller, window.start AS starttime
  FROM auction
  GROUP BY window(dateTime, '10 seconds'), seller
)
SELECT registered.id, registered.name, registered.starttime
FROM registered
JOIN selling ON registered.id = selling.seller AND registered.starttime = selling.starttime;
