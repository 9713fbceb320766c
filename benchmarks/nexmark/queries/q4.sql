-- For each category, the average of the highest bids of its auctions, made while they were open.
CREATE VIEW q4 AS
WITH winning AS (
  SELECT auction.category, max(bid.price) AS final
  FROM auction
  JOIN bid WITHIN FOREVER ON bid.auction = auction.id AND bid.dateTime BETWEEN auction.dateTime AND auction.expires
  GROUP BY auction.id, auction.category
)
SELECT category AS id, avg(final) AS final
FROM winning
GROUP BY category;
