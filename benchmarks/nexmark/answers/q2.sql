-- The bids on some of the auctions.
SELECT auction, price
FROM bid
WHERE auction % 123 = 0
