-- How many bids a bidder makes in each window of 10 seconds: of event time, since processing time has no answer.
WITH placed AS (
  SELECT bidder, time_bucket(INTERVAL 10 SECONDS, dateTime) AS starttime
  FROM bid
)
SELECT bidder, count(*) AS bid_count, starttime, starttime + INTERVAL 10 SECONDS AS endtime
FROM placed
GROUP BY bidder, starttime
