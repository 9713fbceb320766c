-- Each auction with its winning bid: the highest that was made while it was open, the earliest of them if several were.
CREATE VIEW q9 AS
SELECT
  auction.id, auction.itemName, auction.description, auction.initialBid, auction.reserve, auction.dateTime,
  auction.expires, auction.seller, auction.category, auction.extra,
  bid.auction, bid.bidder, bid.price, bid.dateTime AS bid_dateTime, bid.extra AS bid_extra
FROM auction
JOIN bid WITHIN FOREVER ON bid.auction = auction.id AND bid.dateTime BETWEEN auction.dateTime AND auction.expires
QUALIFY ROW_NUMBER() OVER (PARTITION BY auction.id ORDER BY bid.price DESC, bid.dateTime) = 1;
