-- The bids of channels that have an id, with it: a known one, or the one in the url.
CREATE VIEW q21 AS
WITH identified AS (
  SELECT
    auction, bidder, price, channel,
    CASE lower(channel)
      WHEN 'apple' THEN '0'
      WHEN 'google' THEN '1'
      WHEN 'facebook' THEN '2'
      WHEN 'baidu' THEN '3'
      ELSE nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '')
    END AS channel_id
  FROM bid
)
SELECT auction, bidder, price, channel, channel_id
FROM identified
WHERE channel_id IS NOT NULL;
