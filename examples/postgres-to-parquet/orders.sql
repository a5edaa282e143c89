-- SPDX-License-Identifier: Apache-2.0
-- A table that a pipelet reads: rows are inserted, and carry the order in which they were committed.
CREATE TABLE IF NOT EXISTS orders (
  key text NOT NULL,
  value text,
  seq bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  xid xid8 NOT NULL DEFAULT pg_current_xact_id());
CREATE INDEX IF NOT EXISTS orders_order ON orders (xid, seq);
INSERT INTO orders (key, value)
  SELECT 'order-' || n, json_build_object('item', 'pear', 'cents', n) FROM generate_series(1, 5000) AS n;
