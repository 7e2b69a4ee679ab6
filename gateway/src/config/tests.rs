use super::*;
use std::io::Write;

fn load_text(suffix: &str, text: &str) -> Result<Config, String> {
    let mut file = tempfile::Builder::new().suffix(suffix).tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let flags = Flags { config: Some(file.path().to_owned()), ..Flags::default() };
    load(&flags).map_err(|error| error.0.replace(&file.path().display().to_string(), "FILE"))
}

#[test]
fn nothing_written_gives_the_defaults() {
    let config = load(&Flags::default()).unwrap();
    assert_eq!((config.server.port, config.admin.port), (8000, 9000));
    assert_eq!(config.server.body_bytes_max, 32 << 20);
    assert_eq!(config.timeouts.keep_alive, None);
}

#[test]
fn toml_and_yaml_say_the_same() {
    let toml = "[server]\nport = 1\n[[replicas]]\nurl = \"http://a:1\"\nengine = \"vllm\"\n";
    let yaml = "server:\n  port: 1\nreplicas:\n  - url: http://a:1\n    engine: vllm\n";
    let config = load_text(".toml", toml).unwrap();
    assert_eq!(config, load_text(".yaml", yaml).unwrap());
    assert_eq!(config.replicas[0].engine, Some(Engine::Vllm));
}

#[test]
fn flags_win() {
    let flags = Flags { port: Some(7), replicas: vec!["http://b:2".into()], ..Flags::default() };
    let config = load(&flags).unwrap();
    assert_eq!(config.server.port, 7);
    assert_eq!(config.replicas[0].url, "http://b:2");
}

#[test]
fn a_wrong_key_is_named_with_its_line_and_the_right_one() {
    // U135
    for (suffix, text, expected) in [
        (
            ".toml",
            "[server]\nhost = \"a\"\nprot = 1\n",
            "FILE:3: unknown key `server.prot`; did you mean `port`?",
        ),
        (".yaml", "server:\n  thread: 2\n", "FILE:2: unknown key `server.thread`; did you mean `threads`?"),
        (".toml", "\nidle_ms = 3\n", "FILE:2: unknown key `idle_ms`; `timeouts.idle_ms` exists"),
        (".toml", "[server]\nport = \"x\"\n", "FILE:2: `server.port` must be u16, not a string"),
        (
            ".toml",
            "[[replicas]]\nurl = \"a\"\n",
            "FILE:1: `replicas`: `a` is not a replica's URL; expected http://HOST:PORT",
        ),
    ] {
        assert_eq!(load_text(suffix, text).unwrap_err(), expected, "{text}");
    }
    assert!(load_text(".toml", "[server]\nport = 1\nport = 2\n").unwrap_err().contains("duplicate"));
}

#[test]
fn a_key_in_the_wrong_section_leads_to_every_right_one() {
    // U135
    for (text, expected) in [
        ("\nhost = \"a\"\n", "FILE:2: unknown key `host`; `server.host` and `admin.host` exist"),
        (
            "[server]\nkeys_file = \"k\"\n",
            "FILE:2: unknown key `server.keys_file`; `tenants.keys_file` exists",
        ),
        ("[server.probe]\ninterval_ms = 9\n", "FILE:1: unknown key `server.probe`; `probe` exists"),
        ("[server]\nhold_sm = 9\n", "FILE:2: unknown key `server.hold_sm`; did you mean `queue.hold_ms`?"),
        ("[server]\nqwertz = 9\n", "FILE:2: unknown key `server.qwertz`"),
    ] {
        assert_eq!(load_text(".toml", text).unwrap_err(), expected, "{text}");
    }
}

#[test]
fn every_key_misspelt_moved_doubled_or_of_a_wrong_type_is_named_with_its_line() {
    // U135
    let keys = schema::all();
    let is_section = |key: &str| keys.iter().any(|other| other.starts_with(&format!("{key}.")));
    for key in keys.iter().filter(|key| !is_section(key)) {
        let (section, name) = key.rsplit_once('.').expect("nothing stands outside of sections");
        let header = if matches!(section, "replicas" | "dns") {
            format!("[[{section}]]")
        } else {
            format!("[{section}]")
        };
        let error = |line: &str| load_text(".toml", &format!("{header}\n{line}\n")).unwrap_err();
        let misspelt = error(&format!("{name}x = \"canary\""));
        assert!(misspelt.starts_with("FILE:2: unknown key"), "{key}: {misspelt}");
        assert!(misspelt.contains(&format!("did you mean `{name}`?")), "{key}: {misspelt}");
        let moved = load_text(".toml", &format!("\n{name} = \"canary\"\n")).unwrap_err();
        assert!(moved.starts_with("FILE:2: ") && moved.contains(name), "{key}: {moved}");
        assert!(
            keys.iter().any(|known| known == name) || moved.contains(&format!("`{key}`")),
            "{key}: {moved}"
        );
        let wrong = error(&format!("{name} = [[\"canary\"]]"));
        assert!(wrong.starts_with("FILE:2: ") && wrong.contains(name), "{key}: {wrong}");
        assert!(error(&format!("{name} = 1\n{name} = 1")).contains("duplicate"), "{key}");
        for said in [misspelt, moved, wrong] {
            assert!(!said.contains("canary"), "{key}: {said}");
        }
    }
}

#[test]
fn every_number_has_a_range_and_its_name() {
    // U136
    for (section, key) in [
        ("server", "threads"),
        ("server", "body_bytes_max"),
        ("timeouts", "connect_ms"),
        ("timeouts", "first_byte_ms"),
        ("timeouts", "idle_ms"),
        ("timeouts", "total_ms"),
        ("probe", "interval_ms"),
        ("retry", "attempts_max"),
        ("retry", "share"),
        ("health", "failures_max"),
        ("health", "cooldown_ms"),
    ] {
        for value in ["-1", "99999999999999", "nan", "\"1e9\"", "\"4k\""] {
            let error = load_text(".toml", &format!("[{section}]\n{key} = {value}\n")).unwrap_err();
            assert!(error.contains(&format!("{section}.{key}")), "{section}.{key} = {value}: {error}");
            assert!(error.starts_with("FILE:2: "), "{error}");
        }
    }
}

#[test]
fn a_secret_is_never_shown() {
    let error = load_text(".toml", "[admin]\nkey = [\"canary\"]\n").unwrap_err();
    assert!(error.contains("admin.key") && !error.contains("canary"), "{error}");
    assert_eq!(format!("{:?}", Secret("canary".into())), "Secret(…)");
    assert!(
        Secret("ab".into()).is(b"ab") && !Secret("ab".into()).is(b"abc") && !Secret("ab".into()).is(b"a")
    );
}

#[test]
fn an_open_admin_port_needs_a_key() {
    assert!(load_text(".toml", "[admin]\nhost = \"0.0.0.0\"\n").unwrap_err().contains("admin.key"));
    assert!(load_text(".toml", "[admin]\nhost = \"0.0.0.0\"\nkey = \"k\"\n").is_ok());
}

#[test]
fn a_collector_is_a_plain_url() {
    let config = load_text(".toml", "[traces]\nendpoint = \"http://c:4318\"\n").unwrap();
    assert_eq!(config.traces.unwrap().to_string(), "http://c:4318/v1/traces");
    let flags = Flags { traces_endpoint: Some("c:4318".into()), ..Flags::default() };
    let error = load(&flags).unwrap_err().0;
    assert!(error.contains("traces.endpoint") && error.contains("http://HOST:PORT"), "{error}");
    assert_eq!(load(&Flags::default()).unwrap().traces, None);
}

#[test]
fn a_store_and_names_to_resolve_are_checked_when_read() {
    let text = "[store]\nurl = \"redis://:canary@r:6379/0\"\n[[dns]]\nname = \"replicas:8001\"\n";
    let config = load_text(".toml", text).unwrap();
    assert_eq!(config.store.as_ref().map(|store| store.prefix.as_str()), Some("flotilla"));
    assert!(!format!("{config:?}").contains("canary"));
    let error = load_text(".toml", "[store]\nurl = \"canary\"\n").unwrap_err();
    assert!(
        error.starts_with("FILE:2: ") && error.contains("store.url") && !error.contains("canary"),
        "{error}"
    );
    for name in ["replicas", "replicas:", "replicas:0", "replicas:x"] {
        let error = load_text(".toml", &format!("[[dns]]\nname = \"{name}\"\n")).unwrap_err();
        assert!(error.contains("dns.name"), "{error}");
    }
}
