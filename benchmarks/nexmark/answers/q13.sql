-- All bids, each with what a table that does not change says of it.
SELECT bid.auction, bid.bidder, bid.price, bid.dateTime, side_input.value
FROM bid JOIN side_input ON bid.auction % 10000 = side_input.key
