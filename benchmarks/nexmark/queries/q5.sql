-- For each window of 10 seconds, one every 2 seconds: the auctions with the most bids, all of them if several have.
CREATE VIEW q5 AS
SELECT auction, count(*) AS num, window.start AS starttime, window.end AS endtime
FROM bid
GROUP BY window(dateTime, '10 seconds', '2 seconds'), auction
QUALIFY RANK() OVER (PARTITION BY window.start, window.end ORDER BY num DESC) = 1;
