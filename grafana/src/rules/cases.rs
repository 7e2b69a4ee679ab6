//! Cases in which several programs tell the same thing, and the one series that comes of it.

/// Series and samples, what is asked, and the one answer: labels and value.
#[derive(Clone, Copy, Debug)]
pub struct Mapped {
    /// A series and its samples, one a minute.
    pub series: &'static [(&'static str, &'static str)],
    /// The recorded name.
    pub expr: &'static str,
    /// What it must have.
    pub samples: &'static [(&'static str, f64)],
}

/// Looked at after ten minutes.
pub const ALL: &[Mapped] = &[
    Mapped {
        series: &[
            ("vllm:num_requests_running{model_name=\"m\",engine=\"0\",instance=\"a:1\"}", "3x20"),
            ("vllm:num_requests_running{model_name=\"m\",engine=\"1\",instance=\"a:1\"}", "4x20"),
            ("sglang:num_running_reqs{model_name=\"m\",tp_rank=\"0\",instance=\"b:1\"}", "5x20"),
            ("sglang:num_running_reqs{model_name=\"m\",tp_rank=\"1\",instance=\"b:1\"}", "5x20"),
            ("llamacpp:requests_processing{instance=\"c:1\"}", "2x20"),
        ],
        expr: "replica:requests_running:sum",
        samples: &[
            ("replica:requests_running:sum{replica=\"a:1\",model=\"m\"}", 7.0),
            ("replica:requests_running:sum{replica=\"b:1\",model=\"m\"}", 5.0),
            ("replica:requests_running:sum{replica=\"c:1\"}", 2.0),
        ],
    },
    Mapped {
        series: &[
            ("vllm:kv_cache_usage_perc{model_name=\"m\",instance=\"a:1\"}", "0.5x20"),
            ("vllm:gpu_cache_usage_perc{model_name=\"m\",instance=\"old:1\"}", "0.25x20"),
            ("sglang:token_usage{model_name=\"m\",instance=\"b:1\"}", "0.75x20"),
            ("llamacpp:kv_cache_usage_ratio{instance=\"c:1\"}", "1x20"),
        ],
        expr: "replica:kv_usage:ratio",
        samples: &[
            ("replica:kv_usage:ratio{replica=\"a:1\",model=\"m\"}", 0.5),
            ("replica:kv_usage:ratio{replica=\"old:1\",model=\"m\"}", 0.25),
            ("replica:kv_usage:ratio{replica=\"b:1\",model=\"m\"}", 0.75),
            ("replica:kv_usage:ratio{replica=\"c:1\"}", 1.0),
        ],
    },
    Mapped {
        series: &[
            ("flotilla_gpu_memory_used_bytes{instance=\"a:1\",gpu=\"0\",uuid=\"GPU-aa\"}", "1048576x20"),
            ("DCGM_FI_DEV_FB_USED{instance=\"d:9400\",gpu=\"0\",UUID=\"GPU-aa\"}", "9x20"),
            ("DCGM_FI_DEV_FB_USED{instance=\"d:9400\",gpu=\"1\",UUID=\"GPU-bb\"}", "2x20"),
            ("nvidia_smi_memory_used_bytes{instance=\"s:9835\",uuid=\"bb\"}", "7x20"),
            ("nvidia_smi_memory_used_bytes{instance=\"s:9835\",uuid=\"cc\"}", "4096x20"),
            ("nvidia_smi_gpu_info{instance=\"s:9835\",uuid=\"bb\",index=\"1\"}", "1x20"),
            ("nvidia_smi_gpu_info{instance=\"s:9835\",uuid=\"cc\",index=\"2\"}", "1x20"),
        ],
        expr: "gpu:memory_used:bytes",
        samples: &[
            ("gpu:memory_used:bytes{instance=\"a:1\",gpu=\"0\",uuid=\"aa\"}", 1_048_576.0),
            ("gpu:memory_used:bytes{instance=\"d:9400\",gpu=\"1\",uuid=\"bb\"}", 2_097_152.0),
            ("gpu:memory_used:bytes{instance=\"s:9835\",gpu=\"2\",uuid=\"cc\"}", 4096.0),
        ],
    },
    Mapped {
        series: &[
            ("DCGM_FI_DEV_GPU_UTIL{instance=\"d:9400\",gpu=\"0\",UUID=\"GPU-aa\"}", "50x20"),
            ("nvidia_smi_utilization_gpu_ratio{instance=\"s:9835\",uuid=\"cc\"}", "0.25x20"),
            ("nvidia_smi_gpu_info{instance=\"s:9835\",uuid=\"cc\",index=\"2\"}", "1x20"),
        ],
        expr: "gpu:utilization:ratio",
        samples: &[
            ("gpu:utilization:ratio{instance=\"d:9400\",gpu=\"0\",uuid=\"aa\"}", 0.5),
            ("gpu:utilization:ratio{instance=\"s:9835\",gpu=\"2\",uuid=\"cc\"}", 0.25),
        ],
    },
];
