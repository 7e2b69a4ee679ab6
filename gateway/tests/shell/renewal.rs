//! What changes while the gateway runs: configuration, certificate, the process itself.

use crate::support::{Act, Client, Gateway, Stub, chat, chat_stream, event, get, until};
use pingora::tls::{ClientConfig, RootCertStore, ServerName, TlsConnector};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn good() -> Stub {
    Stub::start(|_| Act::json(200, "{}")).await
}

fn write_config(path: &Path, replicas: &[&Stub]) {
    let list: Vec<_> = replicas
        .iter()
        .map(|stub| {
            format!(
                "[[replicas]]
url = \"{}\"",
                stub.url()
            )
        })
        .collect();
    std::fs::write(
        path,
        list.join(
            "
",
        ),
    )
    .unwrap();
}

#[tokio::test]
async fn a_changed_file_changes_the_fleet_and_a_bad_one_nothing() {
    let (one, two) = (good().await, good().await);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gateway.toml");
    write_config(&path, &[&one]);
    let gateway = Gateway::start_with(&[], &[], &["--config", path.to_str().unwrap()]);
    gateway.await_serving(1).await;
    write_config(&path, &[&two]);
    gateway.signal("-HUP");
    until("the other replica serves", async || {
        let fleet = gateway.fleet().await;
        fleet.len() == 1 && fleet[0]["id"] == two.name() && fleet[0]["state"] == "warming"
    })
    .await;
    assert_eq!(gateway.post("/v1/chat/completions", &chat("x")).await.status, 200);
    std::fs::write(&path, "[server]\nprot = 1\n").unwrap();
    let failed = "flotilla_gateway_config_reloads_total{outcome=\"failed\"}";
    until("refused", async || gateway.metric(failed).await >= 1.0).await;
    assert_eq!(gateway.fleet().await[0]["id"], two.name());
    assert_eq!(gateway.post("/v1/chat/completions", &chat("x")).await.status, 200);
    // Without a signal, by the change alone.
    write_config(&path, &[&one, &two]);
    gateway.await_serving(2).await;
}

/// Writes a new certificate for `localhost`; the same in DER.
fn certify(directory: &Path) -> Vec<u8> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(directory.join("key.pem"), made.key_pair.serialize_pem()).unwrap();
    std::fs::write(directory.join("chain.pem"), made.cert.pem()).unwrap();
    made.cert.der().to_vec()
}

async fn ask_with_tls(gateway: &Gateway, trusted: &[u8]) -> Option<String> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.to_vec().into()).unwrap();
    pingora::tls::install_default_crypto_provider();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(gateway.public).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()?;
    stream.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    Some(text)
}

#[tokio::test]
async fn a_renewed_certificate_is_used_without_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let first = certify(directory.path());
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (chain, key) = (file("chain.pem"), file("key.pem"));
    let settings = [("SERVER__TLS_CERTIFICATE", chain.as_str()), ("SERVER__TLS_KEY", key.as_str())];
    let gateway = Gateway::start(&[], &settings);
    assert!(ask_with_tls(&gateway, &first).await.unwrap().starts_with("HTTP/1.1 200"));
    std::fs::write(directory.path().join("key.pem"), "nonsense").unwrap();
    gateway.signal("-HUP");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(ask_with_tls(&gateway, &first).await.is_some(), "a bad file keeps the old certificate");
    let second = certify(directory.path());
    until("the new one is used", async || ask_with_tls(&gateway, &second).await.is_some()).await;
    assert!(ask_with_tls(&gateway, &first).await.is_none());
}

#[tokio::test]
async fn a_new_process_takes_over_without_a_refused_connection() {
    let stub = Stub::start(|request| {
        if request.number > 0 {
            return Act::json(200, "{}");
        }
        let mut acts =
            vec![Act::events_head(), Act::chunk(&event("first")), Act::Sleep(Duration::from_secs(3))];
        acts.extend([Act::chunk(&event("last")), Act::chunk("data: [DONE]\n\n"), Act::end()]);
        acts
    })
    .await;
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("upgrade.sock").to_str().unwrap().to_owned();
    let settings = [("SERVER__UPGRADE_SOCKET", socket.as_str())];
    let mut old = Gateway::ready(&[&stub], &settings).await;
    let mut running = Client::connect(old.public).await;
    running.ask("POST", "/v1/chat/completions", "", chat_stream("x").as_bytes()).await;
    running.read_until("first").await;

    let public = old.public;
    let asking = tokio::spawn(async move {
        let mut answered = 0;
        loop {
            let answer = crate::support::post(public, "/v1/chat/completions", &chat("x")).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            answered += 1;
            tokio::time::sleep(Duration::from_millis(2)).await;
            if answered == 400 {
                return;
            }
        }
    });
    let admin = old.admin.port().to_string();
    let new = tokio::task::spawn_blocking({
        let urls = vec![stub.url()];
        let (socket, admin) = (socket.clone(), admin.clone());
        move || {
            let settings = [("SERVER__UPGRADE_SOCKET", socket.as_str())];
            Gateway::start_with(&urls, &settings, &["--admin-port", &admin, "--upgrade"])
        }
    });
    let new = new.await.unwrap();
    assert_eq!((new.public, new.admin), (old.public, old.admin));
    running.read_until("last").await;
    running.read_until("[DONE]").await;
    until("the old one has ended", async || old.ended().is_some()).await;
    assert!(old.ended().unwrap().success());
    asking.await.unwrap();
    assert_eq!(get(new.public, "/ready").await.status, 200);
}
