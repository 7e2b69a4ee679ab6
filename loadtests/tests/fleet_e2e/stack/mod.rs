//! The stack that `flotilla compose` writes, on a real Docker engine: changed under load in every way that an
//! operator has, and asked for its health. No image is pulled: the base is made from Debian's packages.
//!
//! Left out by name, since their images can't be had without a registry: redis, prometheus.

mod docker;
mod load;

use docker::{Stack, compose_program, run};
use load::{ANSWER_TOKENS, Load};
use serde_json::json;

use crate::client;
use crate::fleet::until;

/// Milliseconds of a step: an answer takes half a second, so that every change meets some under way.
const MODEL: &str = "fake:step=15";
/// An answer that is under way while a gateway is replaced.
const LONG: u32 = 12 * ANSWER_TOKENS;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stack_is_changed_under_load_and_no_request_fails() {
    let compose = match compose_program() {
        Ok(compose) => compose,
        Err(reason) => return println!("SKIPPED stack: {reason}"),
    };
    let mut stack = Stack::write(compose, 3, |topology| topology["model"] = MODEL.into());
    stack.compose(&["up", "-d", "--wait", "--wait-timeout", "120"]);
    stack.until_ready(3).await;
    let mut load = Load::start(stack.port);

    stop_and_start(&stack).await;
    load.check("a replica is stopped and started");
    add_and_remove(&stack).await;
    load.check("a replica is added and removed");
    swap_addresses(&mut stack).await;
    load.check("a replica has another address");
    cut_off(&stack).await;
    load.check("a replica is cut off and comes back");
    replace_every_replica(&stack).await;
    load.check("every replica is replaced");
    replace_the_gateway(&mut stack, &load).await;
    load.check("the gateway is replaced");
    let answers = load.end().await;
    println!("{answers} answers, all whole");
}

/// Taken out, and put in again wherever it is now.
async fn stop_and_start(stack: &Stack) {
    stack.drain("replica-2");
    stack.compose(&["stop", "replica-2"]);
    stack.until_ready(2).await;
    stack.compose(&["start", "replica-2"]);
    rejoined(stack, 3).await;
}

/// A fourth service, which the gateway finds by itself; drained and removed again.
async fn add_and_remove(stack: &Stack) {
    stack.change(|topology| {
        let mut fourth = topology["replicas"][0].clone();
        fourth["name"] = "replica-4".into();
        topology["replicas"].as_array_mut().unwrap().push(fourth);
    });
    stack.compose(&["up", "-d", "--no-recreate", "--wait", "replica-4"]);
    stack.until_ready(4).await;
    stack.drain("replica-4");
    stack.compose(&["rm", "--stop", "--force", "replica-4"]);
    rejoined(stack, 3).await;
}

/// U103: somebody else takes a replica's old address. The gateway finds the replica at its new one, and sends the
/// other nothing.
async fn swap_addresses(stack: &mut Stack) {
    let old = stack.address("replica-1");
    stack.drain("replica-1");
    stack.compose(&["rm", "--stop", "--force", "replica-1"]);
    let guest = stack.invite(&old, "somebody-elses");
    until("the guest is there", async || {
        client::get(guest, "/ready").await.is_ok_and(|answer| answer.status == 200)
    })
    .await;
    stack.compose(&["up", "-d", "--no-deps", "--wait", "replica-1"]);
    assert_ne!(stack.address("replica-1"), old);
    rejoined(stack, 3).await;
    let answered = client::metric(guest, "vllm:request_success_total").await;
    assert!(answered.is_none_or(|answered| answered < 1.0), "the guest answered {answered:?} requests");
    stack.dismiss_guests();
}

/// No address, no name, and no word to anyone; then both again.
async fn cut_off(stack: &Stack) {
    let (network, container) = (stack.network(), stack.container("replica-3"));
    run("docker", &["network", "disconnect", &network, &container]);
    stack.until_ready(2).await;
    let names = ["--alias", "replicas", "--alias", "replica-3"];
    run("docker", &[&["network", "connect"], &names[..], &[&network, &container]].concat());
    rejoined(stack, 3).await;
}

/// One after the other: emptied, replaced, taken back.
async fn replace_every_replica(stack: &Stack) {
    for service in ["replica-1", "replica-2", "replica-3"] {
        stack.drain(service);
        stack.compose(&["up", "-d", "--no-deps", "--force-recreate", "--wait", service]);
        rejoined(stack, 3).await;
    }
}

/// A second gateway takes the clients while the first is replaced; an answer that is under way in the first ends
/// there, whole.
async fn replace_the_gateway(stack: &mut Stack, load: &Load) {
    let (first, second) = (stack.port, stack.second_gateway());
    let is_ready =
        async |port: u16| client::get(port, "/ready").await.is_ok_and(|answer| answer.status == 200);
    until("the second gateway is ready", async || is_ready(second).await).await;
    let long = tokio::spawn(async move { client::chat(first, "a long one", LONG).await.unwrap() });
    // Every client ends an answer meanwhile, so the long one has begun long before the order to end.
    load.move_to(second).await;
    stack.compose(&["up", "-d", "--no-deps", "--force-recreate", "--wait", "gateway"]);
    let long = long.await.unwrap();
    assert!(long.status == 200 && long.dones() == 1 && !long.ends_with_error(), "{long:?}");
    until("the new gateway is ready", async || is_ready(first).await).await;
    stack.until_ready(3).await;
    load.move_to(first).await;
    stack.dismiss_guests();
}

async fn rejoined(stack: &Stack, replicas: usize) {
    stack.undrain_all();
    stack.until_ready(replicas).await;
}

/// U122: a load of 60 s is waited for, and an engine that stalls makes its service unhealthy, by the health check in
/// the image.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stack_waits_for_a_long_load_and_tells_a_stalled_engine() {
    let compose = match compose_program() {
        Ok(compose) => compose,
        Err(reason) => return println!("SKIPPED stack_health: {reason}"),
    };
    let stack = Stack::write(compose, 1, |topology| {
        topology["model"] = "fake:load=60000".into();
        // The weights that such a load would be of: the start period follows from them.
        topology["weight_bytes"] = json!(6_000_000_000_u64);
    });
    stack.compose(&["up", "-d", "--wait", "--wait-timeout", "240"]);
    assert_eq!((stack.health("replica-1"), stack.health("gateway")), ("healthy".into(), "healthy".into()));
    let port = stack.port;
    let stalled = tokio::spawn(async move { client::chat(port, "[[stall:60000]]", 4).await });
    until("the replica is unhealthy", async || stack.health("replica-1") == "unhealthy").await;
    until("the replica is healthy again", async || stack.health("replica-1") == "healthy").await;
    stalled.abort();
}
