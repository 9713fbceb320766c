-- All bids, with the day and the minute of the file that each is written to. The files themselves need a sink.
CREATE VIEW q10 AS
SELECT
  auction, bidder, price, dateTime, extra,
  date_format(dateTime, 'yyyy-MM-dd') AS dt,
  date_format(dateTime, 'HH:mm') AS hm
FROM bid;
