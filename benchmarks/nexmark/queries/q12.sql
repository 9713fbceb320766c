-- How many bids a bidder makes in each window of 10 seconds: of event time, since processing time has no answer.
CREATE VIEW q12 AS
SELECT bidder, count(*) AS bid_count, window.start AS starttime, window.end AS endtime
FROM bid
GROUP BY window(dateTime, '10 seconds'), bidder;
