-- The tables as version 3 of the schema was published, for the test of the generated migrations.
-- Version 1.
CREATE TABLE transfers (
    key TEXT PRIMARY KEY NOT NULL,
    id TEXT NOT NULL,
    began_us BIGINT NOT NULL,
    kind TEXT NOT NULL,
    side TEXT NOT NULL,
    role TEXT NOT NULL,
    ended TEXT NOT NULL,
    host TEXT NOT NULL,
    login TEXT NOT NULL,
    pid BIGINT NOT NULL,
    version TEXT NOT NULL,
    from_host TEXT NOT NULL,
    to_host TEXT NOT NULL,
    source TEXT NOT NULL,
    target TEXT NOT NULL,
    peer TEXT NOT NULL,
    transport TEXT NOT NULL,
    transports TEXT NOT NULL,
    controller TEXT NOT NULL,
    streams BIGINT,
    bytes BIGINT NOT NULL,
    bytes_moved BIGINT NOT NULL,
    files BIGINT NOT NULL,
    failed_files BIGINT NOT NULL,
    elapsed_us BIGINT NOT NULL,
    throughput_bps BIGINT NOT NULL,
    series TEXT NOT NULL,
    retransmitted_bytes BIGINT NOT NULL,
    rtt_us BIGINT,
    srtt_us BIGINT,
    packets_sent BIGINT,
    packets_lost BIGINT,
    host_drops BIGINT,
    loss_cause TEXT,
    p_cpu DOUBLE PRECISION,
    verdict TEXT,
    tcp_cc TEXT,
    tcp_info TEXT,
    load_1m DOUBLE PRECISION,
    source_busy DOUBLE PRECISION,
    target_busy DOUBLE PRECISION,
    exit_code BIGINT,
    error_kind TEXT,
    error TEXT,
    evidence TEXT
);
CREATE INDEX transfers_began ON transfers (host, login, began_us);
CREATE INDEX transfers_id ON transfers (id);
-- Version 2.
ALTER TABLE transfers ADD COLUMN stream_samples TEXT NOT NULL DEFAULT '';
CREATE INDEX transfers_pair ON transfers (from_host, to_host, began_us);
-- Version 3.
ALTER TABLE transfers ADD COLUMN held_by TEXT;
