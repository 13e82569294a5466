//! Texts that clients parse by name: every field is there, and true where it means something.

use std::time::Duration;

use super::*;

/// What Redis 7.0.15 says to INFO everything, and what came with 7.2 to 8.
const INFO: &str = "redis_version redis_git_sha1 redis_git_dirty redis_build_id redis_mode os arch_bits monotonic_clock multiplexing_api \
    atomicvar_api gcc_version process_id process_supervised run_id tcp_port server_time_usec uptime_in_seconds uptime_in_days hz \
    configured_hz lru_clock executable config_file io_threads_active listener0 connected_clients cluster_connections maxclients \
    client_recent_max_input_buffer client_recent_max_output_buffer blocked_clients tracking_clients pubsub_clients watching_clients \
    clients_in_timeout_table total_watched_keys total_blocking_keys total_blocking_keys_on_nokey used_memory used_memory_human \
    used_memory_rss used_memory_rss_human used_memory_peak used_memory_peak_human used_memory_peak_perc used_memory_overhead \
    used_memory_startup used_memory_dataset used_memory_dataset_perc allocator_allocated allocator_active allocator_resident \
    allocator_muzzy total_system_memory total_system_memory_human used_memory_lua used_memory_vm_eval used_memory_lua_human \
    used_memory_scripts_eval number_of_cached_scripts number_of_functions number_of_libraries used_memory_vm_functions \
    used_memory_vm_total used_memory_vm_total_human used_memory_functions used_memory_scripts used_memory_scripts_human maxmemory \
    maxmemory_human maxmemory_policy allocator_frag_ratio allocator_frag_bytes allocator_rss_ratio allocator_rss_bytes \
    rss_overhead_ratio rss_overhead_bytes mem_fragmentation_ratio mem_fragmentation_bytes mem_not_counted_for_evict \
    mem_replication_backlog mem_total_replication_buffers mem_clients_slaves mem_clients_normal mem_cluster_links mem_aof_buffer \
    mem_allocator mem_overhead_db_hashtable_rehashing active_defrag_running lazyfree_pending_objects lazyfreed_objects loading \
    async_loading current_cow_peak current_cow_size current_cow_size_age current_fork_perc current_save_keys_processed \
    current_save_keys_total rdb_changes_since_last_save rdb_bgsave_in_progress rdb_last_save_time rdb_last_bgsave_status \
    rdb_last_bgsave_time_sec rdb_current_bgsave_time_sec rdb_saves rdb_last_cow_size rdb_last_load_keys_expired \
    rdb_last_load_keys_loaded aof_enabled aof_rewrite_in_progress aof_rewrite_scheduled aof_last_rewrite_time_sec \
    aof_current_rewrite_time_sec aof_last_bgrewrite_status aof_rewrites aof_rewrites_consecutive_failures aof_last_write_status \
    aof_last_cow_size module_fork_in_progress module_fork_last_cow_size total_connections_received total_commands_processed \
    instantaneous_ops_per_sec total_net_input_bytes total_net_output_bytes total_net_repl_input_bytes total_net_repl_output_bytes \
    instantaneous_input_kbps instantaneous_output_kbps instantaneous_input_repl_kbps instantaneous_output_repl_kbps \
    rejected_connections sync_full sync_partial_ok sync_partial_err expired_subkeys expired_keys expired_stale_perc \
    expired_time_cap_reached_count expire_cycle_cpu_milliseconds evicted_keys evicted_clients evicted_scripts \
    total_eviction_exceeded_time current_eviction_exceeded_time keyspace_hits keyspace_misses pubsub_channels pubsub_patterns \
    pubsubshard_channels latest_fork_usec total_forks migrate_cached_sockets slave_expires_tracked_keys active_defrag_hits \
    active_defrag_misses active_defrag_key_hits active_defrag_key_misses total_active_defrag_time current_active_defrag_time \
    tracking_total_keys tracking_total_items tracking_total_prefixes unexpected_error_replies total_error_replies \
    dump_payload_sanitizations total_reads_processed total_writes_processed io_threaded_reads_processed io_threaded_writes_processed \
    client_query_buffer_limit_disconnections client_output_buffer_limit_disconnections reply_buffer_shrinks reply_buffer_expands \
    eventloop_cycles eventloop_duration_sum eventloop_duration_cmd_sum instantaneous_eventloop_cycles_per_sec \
    instantaneous_eventloop_duration_usec acl_access_denied_auth acl_access_denied_cmd acl_access_denied_key \
    acl_access_denied_channel role connected_slaves master_failover_state master_replid master_replid2 master_repl_offset \
    second_repl_offset repl_backlog_active repl_backlog_size repl_backlog_first_byte_offset repl_backlog_histlen used_cpu_sys \
    used_cpu_user used_cpu_sys_children used_cpu_user_children used_cpu_sys_main_thread used_cpu_user_main_thread cluster_enabled";

/// The same of CLIENT INFO.
const CLIENT: &str = "id addr laddr fd name age idle flags db sub psub ssub multi watch qbuf qbuf-free argv-mem multi-mem rbs rbp obl \
    oll omem tot-mem events cmd user redir resp lib-name lib-ver io-thread tot-net-in tot-net-out tot-cmds";

/// One answer that is a text.
async fn text(stream: &mut TcpStream, command: &str) -> String {
    send(stream, &[command]).await;
    let mut got = vec![];
    loop {
        stream.read_buf(&mut got).await.unwrap();
        let text = String::from_utf8_lossy(&got);
        let Some((len, text)) = text.strip_prefix('$').and_then(|text| text.split_once("\r\n")) else { continue };
        let len: usize = len.parse().unwrap();
        if text.len() == len + 2 {
            return text[..len].to_owned();
        }
    }
}

fn fields<'a>(text: &'a str, between: &str, is: char) -> BTreeMap<&'a str, &'a str> {
    text.trim_end().split(between).filter_map(|field| field.split_once(is)).collect()
}

#[test]
fn info_has_every_field_of_redis_and_what_means_something_is_true() {
    with_door(|toy, mut stream| async move {
        toy.set_linear();
        *toy.bank.borrow_mut() = Some(bank());
        sign_in(&mut stream).await;
        let all = text(&mut stream, "INFO").await;
        let info = fields(&all, "\r\n", ':');
        let missing: Vec<&str> = INFO.split_whitespace().filter(|name| !info.contains_key(name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        let number = |name: &str| info[name].parse::<f64>().unwrap_or_else(|_| panic!("{name}: {}", info[name]));
        for name in
            ["arch_bits", "process_id", "tcp_port", "total_system_memory", "used_memory_peak", "connected_clients"]
        {
            assert!(number(name) > 0.0, "{name}");
        }
        assert_eq!((number("process_id"), number("aof_enabled")), (f64::from(std::process::id()), 0.0));
        assert!(number("total_commands_processed") >= 1.0 && number("total_connections_received") == 1.0, "{all}");
        assert_eq!((info["redis_version"], info["run_id"].len(), info["os"].is_empty()), ("7.4.0", 40, false));
        assert!(info.values().any(|value| value.starts_with("name=tcp,bind=127.0.0.1,port=")), "{all}");
        let again = text(&mut stream, "INFO server").await;
        assert_eq!(fields(&again, "\r\n", ':')["run_id"], info["run_id"]);
        assert!(!again.contains("# Clients"), "one section");
    });
}

#[test]
fn info_counts_keys_in_both_classes() {
    with_door(|toy, mut stream| async move {
        toy.set_linear();
        *toy.bank.borrow_mut() = Some(bank());
        sign_in(&mut stream).await;
        send(&mut stream, &["MSET a 1 b 2 c 3"]).await;
        expect(&mut stream, "+OK\r\n", "MSET").await;
        assert_eq!(text(&mut stream, "INFO keyspace").await, "# Keyspace\r\ndb0:keys=3,expires=3,avg_ttl=0\r\n");
        // Not counted anew each time.
        toy.seen.take();
        assert!(text(&mut stream, "INFO").await.ends_with("# Keyspace\r\ndb0:keys=3,expires=3,avg_ttl=0\r\n"));
        assert!(toy.seen.borrow().is_empty());
        let mut stream = another(&stream).await;
        // In a transaction nothing is asked.
        send(&mut stream, &["MULTI", "INFO keyspace", "EXEC"]).await;
        expect(&mut stream, "+OK\r\n+QUEUED\r\n*1\r\n$12\r\n# Keyspace\r\n\r\n", "EXEC").await;
        send(&mut stream, &["MSET a 1 b 2", "EXPIRE a 100"]).await;
        expect(&mut stream, "+OK\r\n:1\r\n", "written").await;
        assert_eq!(text(&mut stream, "INFO keyspace").await, "# Keyspace\r\ndb0:keys=2,expires=1,avg_ttl=0\r\n");
    });
}

#[test]
fn info_is_answered_also_where_keys_cannot_be_counted() {
    with_door(|toy, mut stream| async move {
        sign_in(&mut stream).await;
        toy.holds.set(true);
        let began = std::time::Instant::now();
        assert!(text(&mut stream, "INFO").await.ends_with("# Keyspace\r\n"));
        assert!(began.elapsed() >= limits::KEYSPACE_TIME_MAX && began.elapsed() < Duration::from_secs(20));
    });
}

#[test]
fn a_client_is_told_about_itself_with_every_field_of_redis() {
    with_door(|toy, mut stream| async move {
        toy.set_linear();
        *toy.bank.borrow_mut() = Some(bank());
        sign_in_linear(&mut stream).await;
        send(&mut stream, &["CLIENT SETNAME shop", "WATCH a"]).await;
        expect(&mut stream, "+OK\r\n+OK\r\n", "named").await;
        for (command, cmd) in [("CLIENT INFO", "client|info"), ("CLIENT LIST", "client|list")] {
            let said = text(&mut stream, command).await;
            let names: Vec<&str> =
                said.trim_end().split(' ').filter_map(|field| Some(field.split_once('=')?.0)).collect();
            assert_eq!(names, CLIENT.split_whitespace().collect::<Vec<_>>(), "{said}");
            let fields = fields(&said, " ", '=');
            let shown = ["name", "user", "multi", "watch", "flags", "cmd"].map(|name| fields[name]);
            assert_eq!(shown, ["shop", "bank", "-1", "1", "N", cmd]);
        }
        send(&mut stream, &["MULTI", "GET a", "CLIENT INFO", "EXEC"]).await;
        let mut got = vec![];
        while !got.ends_with(b"tot-cmds=0\n\r\n") {
            stream.read_buf(&mut got).await.unwrap();
        }
        let said = String::from_utf8(got).unwrap();
        assert!(said.contains(" flags=x ") && said.contains(" multi=1 watch=1 "), "{said}");
    });
}
