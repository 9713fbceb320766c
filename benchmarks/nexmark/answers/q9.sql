-- Each auction with its winning bid: the highest that was made while it was open, the earliest of them if several were.
SELECT
  auction.id, auction.itemName, auction.description, auction.initialBid, auction.reserve, auction.dateTime,
  auction.expires, auction.seller, auction.category, auction.extra,
  bid.auction, bid.bidder, bid.price, bid.dateTime AS bid_dateTime, bid.extra AS bid_extra
FROM auction JOIN bid ON bid.auction = auction.id AND bid.dateTime BETWEEN auction.dateTime AND auction.expires
QUALIFY row_number() OVER (PARTITION BY auction.id ORDER BY bid.price DESC, bid.dateTime) = 1
