-- How many bids a bidder makes in a session, which ends when 10 seconds have passed without one.
CREATE VIEW q11 AS
SELECT bidder, count(*) AS bid_count, session_window.start AS starttime, session_window.end AS endtime
FROM bid
GROUP BY session_window(dateTime, '10 seconds'), bidder;
