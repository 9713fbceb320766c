-- For each window of 10 seconds: the bids with its highest price, all of them if several have.
-- A rank in each stretch of time keeps the highest bids only; a join with the maxima would keep all bids.
CREATE VIEW q7 AS
SELECT auction, bidder, price, dateTime, extra
FROM bid
QUALIFY RANK() OVER (PARTITION BY unix_seconds(dateTime) DIV 10 ORDER BY price DESC) = 1;
