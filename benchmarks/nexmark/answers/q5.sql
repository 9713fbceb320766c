-- For each window of 10 seconds, one every 2 seconds: the auctions with the most bids, all of them if several have.
WITH placed AS (
  SELECT auction, time_bucket(INTERVAL 2 SECONDS, dateTime) - hop * INTERVAL 2 SECONDS AS starttime
  FROM bid, range(5) AS hops(hop)
),
counted AS (
  SELECT auction, starttime, count(*) AS num
  FROM placed
  GROUP BY auction, starttime
)
SELECT auction, num, starttime, starttime + INTERVAL 10 SECONDS AS endtime
FROM counted
QUALIFY num = max(num) OVER (PARTITION BY starttime)
