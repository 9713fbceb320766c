-- Nexmark's three streams, and the table that q13 looks up. Events may be 4 seconds late, as published.
CREATE TOPIC person (
  id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING,
  dateTime TIMESTAMP, extra STRING
) WITH (time = 'dateTime', lateness = '4 seconds', partitions = 2);

CREATE TOPIC auction (
  id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT,
  dateTime TIMESTAMP, expires TIMESTAMP, seller BIGINT, category BIGINT, extra STRING
) WITH (time = 'dateTime', lateness = '4 seconds', partitions = 2);

CREATE TOPIC bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime TIMESTAMP, extra STRING
) WITH (time = 'dateTime', lateness = '4 seconds', partitions = 2);

CREATE TABLE side_input (key BIGINT, value STRING) WITH (key = 'key');
