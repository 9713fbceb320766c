-- For each seller, the average of the highest bids of the last 10 of its auctions to close that had a bid while open.
CREATE VIEW q6 AS
WITH winning AS (
  SELECT auction.id, auction.seller, auction.expires, max(bid.price) AS price
  FROM auction
  JOIN bid WITHIN FOREVER ON bid.auction = auction.id AND bid.dateTime BETWEEN auction.dateTime AND auction.expires
  GROUP BY auction.id, auction.seller, auction.expires
),
latest_closed AS (
  SELECT seller, price
  FROM winning
  QUALIFY ROW_NUMBER() OVER (PARTITION BY seller ORDER BY expires DESC, id DESC) <= 10
)
SELECT seller, avg(price) AS avg_price
FROM latest_closed
GROUP BY seller;
