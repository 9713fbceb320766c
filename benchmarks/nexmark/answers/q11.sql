-- How many bids a bidder makes in a session, which ends when 10 seconds have passed without one.
WITH marked AS (
  SELECT bidder, dateTime, coalesce(dateTime >= lag(dateTime) OVER bids + INTERVAL 10 SECONDS, true) AS begins
  FROM bid
  WINDOW bids AS (PARTITION BY bidder ORDER BY dateTime)
),
numbered AS (
  SELECT bidder, dateTime, count_if(begins) OVER (PARTITION BY bidder ORDER BY dateTime) AS session
  FROM marked
)
SELECT
  bidder, count(*) AS bid_count,
  min(dateTime) AS starttime,
  max(dateTime) + INTERVAL 10 SECONDS AS endtime
FROM numbered
GROUP BY bidder, session
