-- The bids on auctions of category 10, with what is known of these.
CREATE VIEW q20 AS
SELECT
  bid.auction, bid.bidder, bid.price, bid.channel, bid.url, bid.dateTime AS bid_dateTime, bid.extra AS bid_extra,
  auction.itemName, auction.description, auction.initialBid, auction.reserve, auction.dateTime AS auction_dateTime,
  auction.expires, auction.seller, auction.category, auction.extra AS auction_extra
FROM bid
JOIN auction WITHIN FOREVER ON bid.auction = auction.id AND auction.category = 10;
