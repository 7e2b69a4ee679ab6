//! Options on the command line, in files and in the environment.

use crate::support::run;

/// The error of a start that must fail.
fn error_of(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let arguments = [&["check"], arguments].concat();
    let output = run(&arguments, variables);
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

// U136
#[test]
fn numeric_options_refuse_what_is_no_number_in_range() {
    let whole = [
        "tensor-parallel-size",
        "pipeline-parallel-size",
        "max-model-len",
        "max-num-seqs",
        "max-num-batched-tokens",
        "kv-cache-memory-bytes",
        "block-size",
        "threads",
        "queue-max",
        "body-bytes-max",
    ];
    for option in whole {
        for value in ["0", "-1", "18446744073709551615", "99999999999999999999", "NaN", "1e9", "4k", ""] {
            let flag = format!("--{option}={value}");
            let error = error_of(&["--model", "fake", &flag], &[]);
            assert!(error.contains(option), "{flag}: {error}");
        }
    }
    for option in ["gpu-memory-utilization", "drain-timeout"] {
        for value in ["-1", "NaN", "1e9", "inf", "4k", ""] {
            let flag = format!("--{option}={value}");
            let error = error_of(&["--model", "fake", &flag], &[]);
            assert!(error.contains(option), "{flag}: {error}");
        }
    }
    for (option, value) in
        [("port", "-1"), ("port", "65536"), ("port", "4k"), ("seed", "-1"), ("seed", "NaN"), ("seed", "1e9")]
    {
        let error = error_of(&["--model", "fake", &format!("--{option}={value}")], &[]);
        assert!(error.contains(option), "{error}");
    }
    // A space instead of the equals sign: a negative number is still this option's value.
    assert!(error_of(&["--model", "fake", "--max-num-seqs", "-1"], &[]).contains("max-num-seqs"));
}

// U135
#[test]
fn variables_are_checked_like_flags() {
    for (name, value) in
        [("MAX_NUM_SEQS", ""), ("MAX_NUM_SEQS", "0"), ("MAX_NUM_SEQ", "4"), ("PORT", "4k"), ("HOST", "")]
    {
        let name = format!("FLOTILLA__REPLICA__{name}");
        let error = error_of(&["--model", "fake"], &[(&name, value)]);
        assert!(error.contains(&name), "{name}={value}: {error}");
    }
    let error = error_of(&["--model", "fake"], &[("FLOTILLA__REPLICA__API_KEY", "canary,")]);
    assert!(!error.contains("canary"), "{error}");
}

#[test]
fn layers_win_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("replica.toml");
    std::fs::write(&path, "model = 'fake'\nmax_num_seqs = 0\n").unwrap();
    let file = path.to_str().unwrap();
    assert!(error_of(&["--config", file], &[]).contains("replica.toml:2: max_num_seqs"));
    assert!(run(&["check", "--config", file], &[("FLOTILLA__REPLICA__MAX_NUM_SEQS", "5")]).status.success());
    let both =
        run(&["check", "--config", file, "--max-num-seqs", "5"], &[("FLOTILLA__REPLICA__MAX_NUM_SEQS", "0")]);
    assert!(both.status.success());
}

#[test]
fn what_is_not_implemented_is_refused_by_name() {
    for (option, value) in
        [("pipeline-parallel-size", "2"), ("block-size", "64"), ("quantization", "awq"), ("dtype", "fp8")]
    {
        let error = error_of(&["--model", "fake", &format!("--{option}={value}")], &[]);
        assert!(error.contains(option), "{error}");
    }
}
