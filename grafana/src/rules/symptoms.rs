//! Alerts on what one would see by looking: replicas, caches, load, cards, scrapes.

use shared::metric::gateway as names;

use super::{Alert, Case, Severity};

/// What an alert says to people.
#[derive(Clone, Copy)]
struct Text {
    summary: &'static str,
    action: &'static str,
}

fn alert(
    (name, severity): (&str, Severity),
    (expr, hold): (String, &'static str),
    text: Text,
    fires: Case,
    quiet: Case,
) -> Alert {
    let Text { summary, action } = text;
    Alert { name: name.to_owned(), expr, hold, severity, summary: summary.to_owned(), action, fires, quiet }
}

/// Of the fleet and what it does.
pub fn fleet() -> Vec<Alert> {
    let mut alerts = replicas();
    alerts.extend(caches());
    alerts.extend(load());
    alerts.extend(gateway());
    alerts
}

fn replicas() -> Vec<Alert> {
    let (ready, state) = (names::READY_REPLICAS.name, names::REPLICA_STATE.name);
    let ready_m = format!("{ready}{{model=\"m\"}}");
    let state_r = format!("{state}{{replica=\"r:1\",state=\"ready\"}}");
    let age = names::REPLICA_REPORT_AGE.name;
    let age_r = format!("{age}{{replica=\"r:1\"}}");
    vec![
        alert(
            ("ModelDown", Severity::Page),
            (format!("{ready} == 0"), "1m"),
            Text {
                summary: "No replica of `{{ $labels.model }}` takes work.",
                action: "`flotilla fleet list` says why each is out. Start or undrain one; if they crash, their logs end with the reason.",
            },
            Case::after(10, &[(&ready_m, "2 2 0x20")]),
            Case::after(10, &[(&ready_m, "2 2 0 2x20")]),
        ),
        alert(
            ("ReplicaFlapping", Severity::Ticket),
            (format!("changes({state}{{state=\"ready\"}}[15m]) > 4"), "0m"),
            Text {
                summary: "{{ $labels.replica }} comes and goes.",
                action: "Look at its log for restarts, and at the replica board for memory; drain it until it is understood.",
            },
            Case::after(15, &[(&state_r, "1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1")]),
            Case::after(15, &[(&state_r, "1 1 0 1x20")]),
        ),
        alert(
            ("ReportStale", Severity::Ticket),
            (format!("{age} > 30"), "2m"),
            Text {
                summary: "The gateway has heard nothing from {{ $labels.replica }} for half a minute.",
                action: "Its port answers too slowly or not at all: look at its CPU, and ask its /health and /metrics by hand.",
            },
            Case::after(10, &[(&age_r, "0 30 60 90+60x20")]),
            Case::after(10, &[(&age_r, "1x20")]),
        ),
        alert(
            ("ScrapeFailing", Severity::Ticket),
            ("up == 0".to_owned(), "3m"),
            Text {
                summary: "Prometheus can't read {{ $labels.job }} at {{ $labels.instance }}.",
                action: "Its process is gone, its address changed, or the admin key is wrong; every other board is blind for it.",
            },
            Case::after(10, &[("up{job=\"replicas\",instance=\"r:1\"}", "1 0x20")]),
            Case::after(10, &[("up{job=\"replicas\",instance=\"r:1\"}", "1 0 1x20")]),
        ),
        alert(
            ("ReplicaEjected", Severity::Ticket),
            (format!("increase({}[10m]) > 2", names::EJECTIONS.name), "0m"),
            Text {
                summary: "{{ $labels.replica }} was ejected again and again.",
                action: "The routing board shows what fails there (connect, reset, server_error, timeouts); drain it and read its log.",
            },
            Case::after(10, &[(&format!("{}{{replica=\"r:1\"}}", names::EJECTIONS.name), "0+1x20")]),
            Case::after(10, &[(&format!("{}{{replica=\"r:1\"}}", names::EJECTIONS.name), "0 0 1x20")]),
        ),
    ]
}

fn caches() -> Vec<Alert> {
    let vllm = |metric: &str| format!("vllm:{metric}{{model_name=\"m\",instance=\"r:1\"}}");
    let (kv, waiting) = (vllm("kv_cache_usage_perc"), vllm("num_requests_waiting"));
    let preemptions = vllm("num_preemptions_total");
    let (queries, hits) = (vllm("prefix_cache_queries_total"), vllm("prefix_cache_hits_total"));
    vec![
        alert(
            ("KvFull", Severity::Page),
            ("replica:kv_usage:ratio > 0.9 and replica:requests_waiting:sum > 0".to_owned(), "5m"),
            Text {
                summary: "{{ $labels.replica }} has its KV cache full and requests waiting.",
                action: "Add a replica, or lower --max-num-seqs or --max-model-len; `flotilla plan` says what fits.",
            },
            Case::after(15, &[(&kv, "0.95x20"), (&waiting, "3x20")]),
            Case::after(15, &[(&kv, "0.95x20"), (&waiting, "0x20")]),
        ),
        alert(
            ("Preemptions", Severity::Ticket),
            ("replica:preemptions:rate1m > 0".to_owned(), "5m"),
            Text {
                summary: "{{ $labels.replica }} throws running sequences out for want of KV blocks.",
                action: "Their work is done twice. Lower --max-num-seqs, or give the cache more memory.",
            },
            Case::after(15, &[(&preemptions, "0+2x20")]),
            Case::after(15, &[(&preemptions, "7x20")]),
        ),
        alert(
            ("PrefixHitCollapse", Severity::Ticket),
            (
                "sum by (model) (avg_over_time(replica:prefix_hits:rate1m[15m])) / \
                 (sum by (model) (avg_over_time(replica:prefix_queries:rate1m[15m])) > 0) < 0.5 * \
                 (sum by (model) (avg_over_time(replica:prefix_hits:rate1m[1h] offset 1h)) / \
                 (sum by (model) (avg_over_time(replica:prefix_queries:rate1m[1h] offset 1h)) > 0) > 0.1)"
                    .to_owned(),
                "5m",
            ),
            Text {
                summary: "`{{ $labels.model }}` finds less than half of the cached prefixes that it found an hour ago.",
                action: "Look for a new prompt template, a restart of replicas, or a full KV cache; the routing board compares what was expected with what was found.",
            },
            Case::after(150, &[(&queries, "0+100x180"), (&hits, "0+80x120 9600x60")]),
            Case::after(150, &[(&queries, "0+100x180"), (&hits, "0+80x180")]),
        ),
    ]
}

fn load() -> Vec<Alert> {
    let imbalance = names::IMBALANCE.name;
    let requests = |outcome: &str| format!("{}{{model=\"m\",outcome=\"{outcome}\"}}", names::REQUESTS.name);
    let stalled = format!("{}{{replica=\"r:1\",what=\"idle_timeout\"}}", names::REPLICA_FAILURES.name);
    vec![
        alert(
            ("LoadImbalance", Severity::Ticket),
            (
                format!("{imbalance} > 0.8 and on (model) sum by (model) (replica:requests_running:sum) > 8"),
                "10m",
            ),
            Text {
                summary: "The requests for `{{ $labels.model }}` lie on few of its replicas.",
                action: "One shared prefix or session may draw them (routing board, decisions by reason); a replica that looks fast but is not shows in the estimate's error.",
            },
            Case::after(
                20,
                &[
                    (&format!("{imbalance}{{model=\"m\"}}"), "1x30"),
                    ("vllm:num_requests_running{model_name=\"m\",instance=\"r:1\"}", "20x30"),
                ],
            ),
            Case::after(
                20,
                &[
                    (&format!("{imbalance}{{model=\"m\"}}"), "1x30"),
                    ("vllm:num_requests_running{model_name=\"m\",instance=\"r:1\"}", "2x30"),
                ],
            ),
        ),
        alert(
            ("StreamsStalled", Severity::Page),
            (format!("increase({}{{what=\"idle_timeout\"}}[10m]) > 0", names::REPLICA_FAILURES.name), "0m"),
            Text {
                summary: "Streams of {{ $labels.replica }} fell silent in the middle.",
                action: "Its step loop hangs (collective, driver) while its port answers: restart it; its watchdog's log names the rank.",
            },
            Case::after(10, &[(&stalled, "0 0 0 2x20")]),
            Case::after(20, &[(&stalled, "2x30")]),
        ),
        alert(
            ("Shedding", Severity::Page),
            (
                format!(
                    "sum by (model) (rate({0}{{outcome=\"shed\"}}[5m])) / \
                     (sum by (model) (rate({0}[5m])) > 0) > 0.05",
                    names::REQUESTS.name
                ),
                "5m",
            ),
            Text {
                summary: "More than one in twenty requests for `{{ $labels.model }}` is refused for want of room.",
                action: "Add replicas (/scale says how many), or see on the tenants board who sends so much.",
            },
            Case::after(20, &[(&requests("ok"), "0+60x30"), (&requests("shed"), "0+10x30")]),
            Case::after(20, &[(&requests("ok"), "0+60x30"), (&requests("shed"), "0+1x30")]),
        ),
    ]
}

fn gateway() -> Vec<Alert> {
    let (queued, overhead) = (names::QUEUED.name, names::OVERHEAD.name);
    let reloads = names::CONFIG_RELOADS.name;
    let bucket = |le: &str| format!("{overhead}_bucket{{le=\"{le}\"}}");
    vec![
        alert(
            ("QueueStanding", Severity::Ticket),
            (format!("min_over_time({queued}[5m]) > 0"), "5m"),
            Text {
                summary: "Requests have waited in the gateway's queue for ten minutes without a break.",
                action: "The fleet is too small for this load, or a replica is stuck: compare running and waiting on the fleet board.",
            },
            Case::after(15, &[(queued, "3x20")]),
            Case::after(15, &[(queued, "3 0 3 3 3 0 3 3 3 0 3 3 3 0 3 3 3 0 3 3")]),
        ),
        alert(
            ("GatewaySlow", Severity::Ticket),
            (format!("histogram_quantile(0.99, sum by (le) (rate({overhead}_bucket[5m]))) > 0.05"), "10m"),
            Text {
                summary: "The gateway itself adds more than 50 ms to one request in a hundred.",
                action: "Look at its CPU and --threads, and at the sizes of bodies; it should be well under 1 ms.",
            },
            Case::after(
                20,
                &[(&bucket("0.05"), "0x30"), (&bucket("0.1"), "0+60x30"), (&bucket("+Inf"), "0+60x30")],
            ),
            Case::after(
                20,
                &[(&bucket("0.001"), "0+60x30"), (&bucket("0.1"), "0+60x30"), (&bucket("+Inf"), "0+60x30")],
            ),
        ),
        alert(
            ("ConfigReloadFailed", Severity::Ticket),
            (format!("increase({reloads}{{outcome=\"failed\"}}[15m]) > 0"), "0m"),
            Text {
                summary: "A new configuration was refused; the gateway goes on with the old one.",
                action: "`flotilla-gateway check --config FILE` names the line.",
            },
            Case::after(10, &[(&format!("{reloads}{{outcome=\"failed\"}}"), "0 0 1x20")]),
            Case::after(10, &[(&format!("{reloads}{{outcome=\"failed\"}}"), "0x20")]),
        ),
    ]
}

/// Of cards and ranks.
pub fn machine() -> Vec<Alert> {
    let gpu = |metric: &str, index: &str| {
        format!("flotilla_gpu_{metric}{{instance=\"r:1\",gpu=\"{index}\",uuid=\"GPU-{index}\"}}")
    };
    vec![
        alert(
            ("ForeignProcessOnGpu", Severity::Ticket),
            ("gpu:memory_foreign:bytes > 1073741824".to_owned(), "5m"),
            Text {
                summary: "Somebody else holds more than 1 GiB on card {{ $labels.gpu }} of {{ $labels.instance }}.",
                action: "`flotilla doctor` names the process. Set CUDA_VISIBLE_DEVICES, or lower --gpu-memory-utilization.",
            },
            Case::after(15, &[(&gpu("memory_foreign_bytes", "0"), "4294967296x20")]),
            Case::after(15, &[(&gpu("memory_foreign_bytes", "0"), "268435456x20")]),
        ),
        alert(
            ("GpuXid", Severity::Page),
            ("gpu:xid:changes10m > 0".to_owned(), "0m"),
            Text {
                summary: "Card {{ $labels.gpu }} of {{ $labels.instance }} reported a critical error (XID).",
                action: "Drain its replica; `dmesg | grep -i xid` has the number. 48, 63, 64, 74, 79 and 95 want a reset or a new card.",
            },
            Case::after(10, &[(&gpu("xid_errors_total", "0"), "0 0 0 1x20")]),
            Case::after(10, &[(&gpu("xid_errors_total", "0"), "0x20")]),
        ),
        alert(
            ("GpuMemoryErrors", Severity::Ticket),
            ("gpu:ecc_uncorrected:increase1h > 0".to_owned(), "0m"),
            Text {
                summary: "Card {{ $labels.gpu }} of {{ $labels.instance }} has memory errors that ECC could not correct.",
                action: "Answers may be wrong: drain its replica and reset the card; if it happens again, replace it.",
            },
            Case::after(10, &[(&gpu("ecc_uncorrected_total", "0"), "0 0 2x20")]),
            Case::after(10, &[(&gpu("ecc_uncorrected_total", "0"), "2x20")]),
        ),
        alert(
            ("GpuThrottled", Severity::Ticket),
            ("gpu:throttled:bool > 0".to_owned(), "10m"),
            Text {
                summary: "Heat or power hold card {{ $labels.gpu }} of {{ $labels.instance }} back.",
                action: "See temperature and power on the GPU board; check fans and air flow, or the power limit.",
            },
            Case::after(20, &[(&gpu("throttled", "0"), "1x30")]),
            Case::after(20, &[(&gpu("throttled", "0"), "1 1 0 1 1 0 1 1 0 1 1 0 1 1 0 1 1 0 1 1 0 1 1 0")]),
        ),
        alert(
            ("RankImbalance", Severity::Ticket),
            (
                "max by (instance) (gpu:utilization:ratio) - min by (instance) (gpu:utilization:ratio) > 0.5"
                    .to_owned(),
                "10m",
            ),
            Text {
                summary: "The cards of {{ $labels.instance }} do not share the work: one is busy, another idles.",
                action: "In a replica of several ranks tensor parallelism is not in effect: check --tensor-parallel-size and CUDA_VISIBLE_DEVICES. Under an exporter for a whole machine, compare which replica has the idle card.",
            },
            Case::after(
                20,
                &[(&gpu("utilization_ratio", "0"), "1x30"), (&gpu("utilization_ratio", "1"), "0.05x30")],
            ),
            Case::after(
                20,
                &[(&gpu("utilization_ratio", "0"), "1x30"), (&gpu("utilization_ratio", "1"), "0.75x30")],
            ),
        ),
    ]
}
