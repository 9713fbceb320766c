-- For each window of 10 seconds: the bids with its highest price, all of them if several have.
SELECT auction, bidder, price, dateTime, extra
FROM bid
QUALIFY price = max(price) OVER (PARTITION BY time_bucket(INTERVAL 10 SECONDS, dateTime))
