//! What gateways share: one contract for both stores, a real Redis among them, and gateways that share through it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use gateway::config::{Config, RawConfig};
use gateway::discovery::lease::Leases;
use gateway::gateway::Gateway;
use gateway::store::{Computed, Cursor, Memory, Redis, Spent, Store, follow_keys, share};
use gateway::telemetry::Logs;
use gateway::tenants::{Keyring, Stranger, Tenants};
use gateway_core::fleet::{Event, Readiness, Report};
use gateway_core::load::Sample;
use gateway_core::replica::{Identity, ModelKey};
use shared::keys::digest;
use shared::wire::Registration;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait for anything here; reached only when a test fails.
const PATIENCE: Duration = Duration::from_mins(1);

/// A Redis of our own on a socket file. It ends with the value.
struct Server(Child);

impl Server {
    /// `None`, and a line that says so, where there is no redis-server.
    fn start(folder: &Path) -> Option<Self> {
        let args = ["--port", "0", "--unixsocket", "redis.sock", "--save", "", "--appendonly", "no"];
        let child = Command::new("redis-server").args(args).current_dir(folder).stdout(Stdio::null()).spawn();
        match child {
            Ok(child) => Some(Self(child)),
            Err(error) => {
                eprintln!("skipped: redis-server can't be started: {error}");
                None
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn redis(folder: &Path) -> Redis {
    Redis::new(&format!("redis+unix://{}/redis.sock", folder.display()), "test").unwrap()
}

async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let begin = Instant::now();
    while !is_so().await {
        assert!(begin.elapsed() < PATIENCE, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn spent(requests: i64, tokens: i64) -> Spent {
    Spent { tenant: "t".to_owned(), requests, tokens }
}

fn computed(piece: u128) -> Computed {
    Computed {
        url: "http://a:1".to_owned(),
        instance: "i".to_owned(),
        pieces: vec![piece, u128::MAX - piece],
    }
}

async fn check_contract(store: &dyn Store) {
    assert_eq!(store.spend(&[spent(1, 10)]).await.unwrap(), vec![spent(1, 10)]);
    assert_eq!(store.spend(&[spent(2, -5), spent(0, 0)]).await.unwrap(), vec![spent(3, 5), spent(3, 5)]);

    store.announce("http://b:1", Duration::from_mins(1)).await.unwrap();
    store.announce("http://a:1", Duration::from_millis(1)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(store.members().await.unwrap(), vec!["http://b:1"]);
    store.announce("http://a:1", Duration::from_mins(1)).await.unwrap();
    assert_eq!(store.members().await.unwrap(), vec!["http://a:1", "http://b:1"]);
    store.withdraw("http://b:1").await.unwrap();
    assert_eq!(store.members().await.unwrap(), vec!["http://a:1"]);

    store.publish(&[computed(1)]).await.unwrap();
    let (news, cursor) = store.news(&Cursor::default()).await.unwrap();
    assert_eq!(news, vec![], "what was before is not news");
    store.publish(&[computed(2), computed(3)]).await.unwrap();
    let (news, cursor) = store.news(&cursor).await.unwrap();
    assert_eq!(news, vec![computed(2), computed(3)]);
    let (news, _) = store.news(&cursor).await.unwrap();
    assert_eq!(news, vec![]);
    assert_eq!(store.keys().await.unwrap(), None);
}

#[tokio::test]
async fn memory_keeps_the_contract() {
    check_contract(&Memory::default()).await;
}

#[tokio::test]
async fn redis_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_server) = Server::start(folder.path()) else { return };
    let store = redis(folder.path());
    until("redis answers", || async { store.members().await.is_ok() }).await;
    check_contract(&store).await;
}

#[tokio::test]
async fn a_redis_that_goes_away_is_an_outage_and_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let store = redis(folder.path());
    assert!(store.members().await.is_err(), "nobody is there yet");
    let Some(server) = Server::start(folder.path()) else { return };
    until("redis answers", || async { store.members().await.is_ok() }).await;
    drop(server);
    assert!(store.spend(&[spent(1, 1)]).await.is_err());
    let _server = Server::start(folder.path());
    until("redis answers again", || async { store.spend(&[spent(1, 1)]).await.is_ok() }).await;
}

#[test]
fn the_password_of_a_url_is_never_shown() {
    let store = Redis::new("redis://:canary@127.0.0.1:1/0", "test").unwrap();
    assert!(!format!("{store:?}").contains("canary"));
    assert!(!Redis::new("canary://x", "test").unwrap_err().contains("canary"));
}

/// A file of keys with one tenant and the key `key`.
fn key_file() -> String {
    let key = serde_json::json!({ "id": "k", "sha256": digest(b"key") });
    let tenant = serde_json::json!({ "name": "t", "keys": [key], "requests_per_min": 10 });
    serde_json::json!({ "tenants": [tenant] }).to_string()
}

#[tokio::test]
async fn keys_in_the_store_let_in_once_they_are_there_and_no_longer_when_they_are_gone() {
    let (tenants, store) = (Arc::new(Tenants::of_store()), Arc::new(Memory::default()));
    let gateway = sharing(&tenants, store.clone()).0;
    let changed = { move |ring: &Keyring| gateway.set_tenants(ring) };
    tokio::spawn(follow_keys(tenants.clone(), store.clone(), changed));
    let identify = || tenants.identify(b"Bearer key");
    assert_eq!(identify(), Err(Stranger::Unread));
    store.set_keys(key_file().as_bytes());
    until("the key is good", || async { identify().is_ok() }).await;
    store.set_keys(br#"{"tenants":[]}"#);
    until("the key is revoked", || async { identify() == Err(Stranger::Unknown) }).await;
}

fn keys(folder: &Path) -> Arc<Tenants> {
    let path = folder.join("keys.json");
    std::fs::write(&path, key_file()).unwrap();
    Arc::new(Tenants::of_file(&path).unwrap())
}

/// A gateway without ports that shares through `store`.
fn sharing(tenants: &Arc<Tenants>, store: Arc<dyn Store>) -> (Arc<Gateway>, Arc<Leases>) {
    let config = Config::try_from(RawConfig::default()).unwrap();
    let runtime = tokio::runtime::Handle::current();
    let gateway = Arc::new(Gateway::new(config, tenants.clone(), Logs::default(), runtime));
    let leases = Arc::new(Leases::default());
    tokio::spawn(share(gateway.clone(), leases.clone(), store));
    (gateway, leases)
}

/// Teaches a gateway that its replica serves a model, and which key that has.
fn model_of(gateway: &Arc<Gateway>) -> ModelKey {
    let id = gateway.peer_named("127.0.0.1:9").unwrap().id;
    let identity = Identity { models: vec!["m".to_owned()], ..Identity::default() };
    let readiness = Readiness::Ready;
    let report = Report { identity, readiness, sample: Sample::default(), at: gateway.now() };
    gateway.apply(Event::Reported(id, report));
    gateway.model("m").unwrap()
}

/// Two gateways: what registers at one is known to both, and what a tenant spends at one counts at both.
async fn check_sharing(a_store: Arc<dyn Store>, b_store: Arc<dyn Store>, folder: &Path) {
    let tenants = keys(folder);
    let tenant = tenants.identify(b"Bearer key").unwrap().tenant;
    let (a, leases) = sharing(&tenants, a_store);
    let (b, _) = sharing(&tenants, b_store);
    let url = "http://127.0.0.1:9".to_owned();
    let registration = Registration { url: url.clone(), engine: None, lease_s: None };
    leases.register(&a, &registration).unwrap();
    until("b knows the replica", || async { b.peer_named("127.0.0.1:9").is_some() }).await;

    let remaining = |gateway: &Gateway| gateway.standing(tenant.id).0.unwrap().remaining;
    let model = model_of(&b);
    assert_eq!(model_of(&a), model);
    let first = b.admit(&tenant, model, 4, Some(1)).unwrap();
    until("b is known to spend", || async { remaining(&b) == 9 }).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let admitted: Vec<_> = (0..8).map(|_| a.admit(&tenant, model, 4, Some(1)).unwrap()).collect();
    until("b hears of it", || async { remaining(&b) <= 2 }).await;
    drop((first, admitted));

    leases.end(&url);
    until("b forgets the replica", || async { b.peer_named("127.0.0.1:9").is_none() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gateways_of_one_process_share_through_memory() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Memory::default());
    check_sharing(store.clone(), store, folder.path()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gateways_share_through_redis_even_one_that_starts_late() {
    let folder = tempfile::tempdir().unwrap();
    let late = folder.path().to_owned();
    let starting = tokio::task::spawn_blocking(move || {
        std::thread::sleep(Duration::from_millis(1500));
        Server::start(&late)
    });
    let stores = (Arc::new(redis(folder.path())), Arc::new(redis(folder.path())));
    let checking = check_sharing(stores.0, stores.1, folder.path());
    tokio::pin!(checking);
    let server = tokio::select! {
        server = starting => server.unwrap(),
        () = &mut checking => unreachable!("there is no Redis yet"),
    };
    if server.is_some() {
        checking.await;
    }
}
