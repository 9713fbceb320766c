-- All bids, each with what a table that does not change says of it.
CREATE VIEW q13 AS
SELECT bid.auction, bid.bidder, bid.price, bid.dateTime, side_input.value
FROM bid
JOIN side_input FOR SYSTEM_TIME AS OF LATEST ON bid.auction % 10000 = side_input.key;
