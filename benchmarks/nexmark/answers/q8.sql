-- For each window of 10 seconds: who registered in it and opened an auction in it.
WITH registered AS (
  SELECT DISTINCT id, name, time_bucket(INTERVAL 10 SECONDS, dateTime) AS starttime
  FROM person
),
selling AS (
  SELECT DISTINCT seller, time_bucket(INTERVAL 10 SECONDS, dateTime) AS starttime
  FROM auction
)
SELECT registered.id, registered.name, registered.starttime
FROM registered JOIN selling ON registered.id = selling.seller AND registered.starttime = selling.starttime
