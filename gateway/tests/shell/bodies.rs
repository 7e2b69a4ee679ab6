//! Bodies of every size arrive whole, whatever way they come.

use crate::support::{Act, Client, Gateway, Stub, post, request};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::io::Write;

const SIZES: [usize; 5] = [1_000, 63 * 1024, 65 * 1024, 400 * 1024, 20 << 20];

/// A chat body of exactly so many bytes.
fn body(size: usize) -> Vec<u8> {
    let frame = crate::support::chat("").len();
    let text: String = (0..size - frame).map(|at| char::from(b'a' + (at % 23) as u8)).collect();
    crate::support::chat(&text).into_bytes()
}

async fn answering() -> Stub {
    Stub::start(|request| Act::json(200, &format!("{{\"bytes\":{}}}", request.body.len()))).await
}

fn check(stub: &Stub, sent: &[u8]) {
    let recorded = stub.recorded().pop().unwrap();
    assert!(recorded.body == sent, "{} bytes came as {}", sent.len(), recorded.body.len());
    // U082: exactly one valid framing header
    assert_eq!(recorded.header("content-length"), [sent.len().to_string()]);
    assert!(recorded.header("transfer-encoding").is_empty());
}

#[tokio::test]
async fn over_http1_with_a_length() {
    let stub = answering().await;
    let gateway = Gateway::ready(&[&stub], &[]).await;
    for size in SIZES {
        let sent = body(size);
        let answer = request(gateway.public, "POST", "/v1/chat/completions", "", &sent).await;
        assert_eq!((answer.status, answer.text()), (200, format!("{{\"bytes\":{size}}}")));
        check(&stub, &sent);
    }
}

#[tokio::test]
async fn over_http1_in_chunks() {
    let stub = answering().await;
    let gateway = Gateway::ready(&[&stub], &[]).await;
    for size in SIZES {
        let sent = body(size);
        let mut client = Client::connect(gateway.public).await;
        client
            .send("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
            .await;
        for part in sent.chunks(10_007) {
            client.send(format!("{:x}\r\n", part.len())).await;
            client.send(part).await;
            client.send("\r\n").await;
        }
        client.send("0\r\n\r\n").await;
        assert_eq!(client.answer().await.unwrap().status, 200);
        check(&stub, &sent);
    }
}

#[tokio::test]
async fn over_http2_with_and_without_a_length() {
    let stub = answering().await;
    let gateway = Gateway::ready(&[&stub], &[]).await;
    let stream = tokio::net::TcpStream::connect(gateway.public).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    for size in SIZES {
        for with_length in [true, false] {
            let sent = body(size);
            let request = hyper::Request::post("http://test/v1/chat/completions");
            let request = if with_length {
                request.body(Full::new(Bytes::from(sent.clone())).boxed())
            } else {
                let (to, mut parts) = tokio::sync::mpsc::channel(4);
                let pieces: Vec<Bytes> = sent.chunks(9_001).map(Bytes::copy_from_slice).collect();
                tokio::spawn(async move {
                    for piece in pieces {
                        to.send(Ok::<_, Infallible>(Frame::data(piece))).await.unwrap();
                    }
                });
                let parts = futures_util::stream::poll_fn(move |context| parts.poll_recv(context));
                request.body(BodyExt::boxed(StreamBody::new(parts)))
            };
            let answer = sender.send_request(request.unwrap()).await.unwrap();
            assert_eq!(answer.status(), 200);
            assert_eq!(answer.headers()["x-flotilla-replica"], stub.name());
            let text = answer.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(text, format!("{{\"bytes\":{size}}}"));
            check(&stub, &sent);
        }
    }
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_in_openai_shape() {
    // U029
    let stub = answering().await;
    let gateway = Gateway::ready(&[&stub], &[]).await;
    let limit = 32 << 20;
    let sent = body(limit);
    assert_eq!(request(gateway.public, "POST", "/v1/chat/completions", "", &sent).await.status, 200);
    let before = stub.requests();
    let answer = request(gateway.public, "POST", "/v1/chat/completions", "", &body(limit + 1)).await;
    assert_eq!((answer.status, answer.code().as_str()), (413, "body_too_large"));
    assert_eq!(stub.requests(), before);
    assert_eq!(gateway.metric("flotilla_gateway_refused_total{reason=\"body_too_large\"}").await, 1.0);
    assert_eq!(post(gateway.public, "/v1/chat/completions", &crate::support::chat("hi")).await.status, 200);
}

#[tokio::test]
async fn a_client_may_ask_before_it_sends() {
    let stub = answering().await;
    let gateway = Gateway::ready(&[&stub], &[]).await;
    let sent = body(3_000);
    let mut client = Client::connect(gateway.public).await;
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        sent.len()
    );
    client.send(head).await;
    assert_eq!(client.answer().await.unwrap().status, 100);
    client.send(&sent).await;
    assert_eq!(client.answer().await.unwrap().status, 200);
    check(&stub, &sent);
    assert!(stub.recorded()[0].header("expect").is_empty());
}

#[tokio::test]
async fn packed_bodies_are_unpacked_or_refused() {
    // U099
    let stub = answering().await;
    let gateway = Gateway::ready(&[&stub], &[]).await;
    let sent = body(100_000);
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(&sent).unwrap();
    let packed = packer.finish().unwrap();
    let ask = async |encoding: &str, body: &[u8]| {
        let headers = format!("content-encoding: {encoding}\r\n");
        request(gateway.public, "POST", "/v1/chat/completions", &headers, body).await
    };
    assert_eq!(ask("gzip", &packed).await.status, 200);
    check(&stub, &sent);
    assert!(stub.recorded()[0].header("content-encoding").is_empty());
    let broken = ask("gzip", &sent).await;
    assert_eq!((broken.status, broken.code().as_str()), (400, "invalid_body"));
    let unknown = ask("br", &packed).await;
    assert_eq!((unknown.status, unknown.code().as_str()), (415, "unsupported_encoding"));
}
