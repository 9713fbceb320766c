-- All bids, as they are.
CREATE VIEW q0 AS
SELECT auction, bidder, price, dateTime, extra
FROM bid;
