package check

// panel is a graph: what it shows, in what unit, and the queries with their
// legends. The dashboard is made of these rows; change them here.
type panel struct {
	title, unit, doc string
	queries          []query
}

type query struct{ expr, legend string }

// sel chooses the workers that the dashboard's variables name.
const sel = `namespace=~"$namespace",job=~"$job"`

var rows = []struct {
	title  string
	panels []panel
}{
	{"Health", []panel{
		{"Ready", "short", "G4. Workers that are ready, by part; /readyz of one that is not says what it lacks.", []query{
			{`sum by (component) (ncmp_inventory_ready{` + sel + `})`, "{{component}}"}}},
		{"Members of the group", "short", "Workers that are members of the consumer group, and all that are scraped.", []query{
			{`sum(ncmp_inventory_group_joined{` + sel + `})`, "members"},
			{`count(ncmp_inventory_build_info{` + sel + `})`, "workers"}}},
		{"Restarts and rebalances", "short", "Starts of processes in an hour, and rebalances that members took part in.", []query{
			{`sum(changes(process_start_time_seconds{` + sel + `}[1h]))`, "restarts"},
			{`sum(increase(ncmp_inventory_rebalances_total{` + sel + `}[$__rate_interval]))`, "rebalances"}}},
		{"Versions", "short", "Workers by version; two at a time are a roll-out.", []query{
			{`count by (version) (ncmp_inventory_build_info{` + sel + `})`, "{{version}}"}}},
	}},
	{"Input", []panel{
		{"Lag in seconds", "s", "G4. Age of the oldest record that was not applied, by partition.", []query{
			{`max by (topic, partition) (ncmp_inventory_lag_seconds{` + sel + `})`, "{{topic}}/{{partition}}"}}},
		{"Lag in records", "short", "Records that can be read and were not applied, and those behind a producer's open transaction.", []query{
			{`sum by (topic) (ncmp_inventory_lag_records{` + sel + `})`, "{{topic}}"},
			{`sum by (topic) (ncmp_inventory_lag_open_transaction_records{` + sel + `}) > 0`, "{{topic}} open"}}},
		{"Records", "cps", "Records applied a second, by topic and what they were.", []query{
			{`sum by (topic, result) (rate(ncmp_inventory_records_total{` + sel + `}[$__rate_interval]))`, "{{topic}} {{result}}"}}},
		{"Entries", "cps", "Entries a second, by operation and result: ok, or the code that they were refused with. NCMP: cps.ncmp.inventory.controller.update.", []query{
			{`sum by (operation, result) (rate(ncmp_inventory_handle_operations_total{` + sel + `}[$__rate_interval]))`, "{{operation}} {{result}}"},
			{`sum(rate(ncmp_inventory_unchanged_entries_total{` + sel + `}[$__rate_interval])) > 0`, "of these unchanged"}}},
		{"Dead letters", "short", "G3. Records set aside, by reason.", []query{
			{`sum by (reason) (increase(ncmp_inventory_dead_letters_total{` + sel + `}[$__rate_interval])) > 0`, "{{reason}}"}}},
		{"Halted partitions", "short", "G6. Partitions that wait for a person, and why partitions halted.", []query{
			{`sum by (topic) (ncmp_inventory_partition_halted{` + sel + `})`, "{{topic}}"},
			{`sum by (kind) (increase(ncmp_inventory_halts_total{` + sel + `}[$__rate_interval])) > 0`, "halted: {{kind}}"}}},
		{"Gaps and rewinds", "short", "G6. Gaps in the input, and databases that went back, that were passed over by policy.", []query{
			{`sum by (kind) (increase(ncmp_inventory_gaps_total{` + sel + `}[$__rate_interval]))`, "{{kind}}"}}},
		{"Claims lost", "short", "G5. Batches refused because another worker had claimed the partition, and batches that took so long that heartbeats stopped.", []query{
			{`sum(increase(ncmp_inventory_fenced_total{` + sel + `}[$__rate_interval]))`, "fenced"},
			{`sum(increase(ncmp_inventory_stalls_total{` + sel + `}[$__rate_interval]))`, "stalled"}}},
	}},
	{"Batches and PostgreSQL", []panel{
		{"Batch time (p99)", "s", "G1. Time of a batch by phase: 99 of 100 took no longer. NCMP: cps.ncmp.cmhandle.state.update.batch.", []query{
			{`histogram_quantile(0.99, sum by (phase, le) (rate(ncmp_inventory_batch_phase_seconds_bucket{` + sel + `}[$__rate_interval])))`, "{{phase}}"}}},
		{"Batch size", "short", "Records in a batch: more under load, for batches gather while a transaction runs.", []query{
			{`histogram_quantile(0.5, sum by (le) (rate(ncmp_inventory_batch_records_bucket{` + sel + `}[$__rate_interval])))`, "median"},
			{`histogram_quantile(0.99, sum by (le) (rate(ncmp_inventory_batch_records_bucket{` + sel + `}[$__rate_interval])))`, "p99"}}},
		{"Retries", "cps", "G4. What was tried again.", []query{
			{`sum by (what) (rate(ncmp_inventory_retries_total{` + sel + `}[$__rate_interval])) > 0`, "{{what}}"},
			{`sum by (class) (rate(ncmp_inventory_store_retries_total{` + sel + `}[$__rate_interval])) > 0`, "transaction: {{class}}"}}},
		{"Durability", "short", "G1. 1 while PostgreSQL runs with fsync = off, and commits whose answer was lost.", []query{
			{`max(ncmp_inventory_store_fsync_off{` + sel + `})`, "fsync off"},
			{`sum(increase(ncmp_inventory_store_retries_total{` + sel + `,class="unknown-commit"}[$__rate_interval]))`, "unknown commits"}}},
	}},
	{"Output", []panel{
		{"Outbox age", "s", "G2. How long the oldest message waits to be published.", []query{
			{`max(ncmp_inventory_outbox_oldest_age_seconds{` + sel + `})`, "oldest"}}},
		{"Outbox", "bytes", "G7. Bytes that wait to be published, of all workers on the database.", []query{
			{`max(ncmp_inventory_outbox_bytes{` + sel + `})`, "waiting"}}},
		{"Messages waiting", "short", "G2. Messages that wait, those that the broker refuses, and whether input pauses for them.", []query{
			{`max(ncmp_inventory_outbox_messages{` + sel + `})`, "waiting"},
			{`max(ncmp_inventory_outbox_parked_messages{` + sel + `})`, "parked"},
			{`max(ncmp_inventory_input_paused{` + sel + `})`, "input paused"}}},
		{"Publisher", "short", "G2. Who publishes (one at a time), how often that changed, and how often Kafka turned one away.", []query{
			{`sum by (instance) (ncmp_inventory_publisher_leader{` + sel + `}) > 0`, "{{instance}}"},
			{`sum(increase(ncmp_inventory_publisher_terms_total{` + sel + `}[$__rate_interval]))`, "terms"},
			{`sum(increase(ncmp_inventory_publisher_fenced_total{` + sel + `}[$__rate_interval]))`, "fenced"}}},
		{"Published", "cps", "Messages that Kafka acknowledged, by kind. NCMP: cps.ncmp.lcm.events.send.", []query{
			{`sum by (kind) (rate(ncmp_inventory_published_total{` + sel + `}[$__rate_interval]))`, "{{kind}}"}}},
		{"Publish time (p99)", "s", "Time from sending a batch to its acknowledgement.", []query{
			{`histogram_quantile(0.99, sum by (kind, le) (rate(ncmp_inventory_publish_seconds_bucket{` + sel + `}[$__rate_interval])))`, "{{kind}}"}}},
		{"Publish retries", "cps", "G2. Batches sent again, messages set aside, and calls of the outbox that failed.", []query{
			{`sum by (kind) (rate(ncmp_inventory_publish_retries_total{` + sel + `}[$__rate_interval])) > 0`, "again: {{kind}}"},
			{`sum by (kind) (rate(ncmp_inventory_publish_parked_total{` + sel + `}[$__rate_interval])) > 0`, "parked: {{kind}}"},
			{`sum(rate(ncmp_inventory_publish_outbox_retries_total{` + sel + `}[$__rate_interval]))`, "outbox"}}},
	}},
	{"Inventory", []panel{
		{"CM handles", "short", "Stored CM handles by state. NCMP: cps_ncmp_inventory_cm_handles_by_state.", []query{
			{`max by (state) (ncmp_inventory_handles{` + sel + `})`, "{{state}}"}}},
		{"Longest in a state", "s", "Time since the last update of the CM handle that is the longest in a state; READY may stand for ever.", []query{
			{`max by (state) (ncmp_inventory_handle_state_age_seconds{` + sel + `,state!="READY"})`, "{{state}}"}}},
		{"Transitions", "cps", "State transitions a second; a creation comes from none.", []query{
			{`sum by (from, to) (rate(ncmp_inventory_state_transitions_total{` + sel + `}[$__rate_interval]))`, "{{from}} to {{to}}"}}},
		{"History removed", "cps", "Entries of the history removed a second because of their age or number.", []query{
			{`sum(rate(ncmp_inventory_history_removed_total{` + sel + `}[$__rate_interval]))`, "removed"}}},
	}},
	{"Resources", []panel{
		{"Input in memory", "bytes", "G7. Bytes of input in flight, by worker, and the bound.", []query{
			{`max by (instance) (ncmp_inventory_in_flight_bytes{` + sel + `})`, "{{instance}}"},
			{`max(ncmp_inventory_in_flight_limit_bytes{` + sel + `})`, "bound"}}},
		{"Memory", "bytes", "G7. Resident memory by worker; Go keeps below nine tenths of the container's limit.", []query{
			{`max by (instance) (process_resident_memory_bytes{` + sel + `})`, "{{instance}}"},
			{`min(go_gc_gomemlimit_bytes{` + sel + `} < 1e15)`, "Go's limit"}}},
		{"CPU", "short", "Cores in use, by worker.", []query{
			{`sum by (instance) (rate(process_cpu_seconds_total{` + sel + `}[$__rate_interval]))`, "{{instance}}"}}},
		{"Stops", "s", "G8. How long a stopping worker has been at it, and how long it may take.", []query{
			{`max by (instance) (ncmp_inventory_stopping_seconds{` + sel + `}) > 0`, "{{instance}}"},
			{`max(ncmp_inventory_drain_timeout_seconds{` + sel + `})`, "drain timeout"}}},
		{"Log lines dropped", "cps", "Lines left out because the same message came too often.", []query{
			{`sum by (instance) (rate(ncmp_inventory_log_lines_dropped_total{` + sel + `}[$__rate_interval]))`, "{{instance}}"}}},
	}},
}
