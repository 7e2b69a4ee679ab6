//! A replica that does what a test says, byte by byte, and remembers what it was asked.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// One request as it came.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub method: String,
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Counts the requests of this stub, probes apart, from 0.
    pub number: usize,
}

impl Recorded {
    /// All values of a header.
    pub fn header(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect()
    }
}

/// One thing to do in answer to a request.
#[derive(Clone, Debug)]
pub enum Act {
    /// Write these bytes.
    Write(Vec<u8>),
    /// Wait.
    Sleep(Duration),
    /// Wait until the other side closes, then note it.
    AwaitClose,
    /// Close at once, so that the other side sees a reset.
    Reset,
    /// Close in good order.
    Close,
}

impl Act {
    /// A whole JSON answer.
    pub fn json(status: u16, body: &str) -> Vec<Self> {
        Self::answer(status, "content-type: application/json\r\n", body)
    }

    /// A whole answer with more headers, each ending in a line break.
    pub fn answer(status: u16, headers: &str, body: &str) -> Vec<Self> {
        let length = body.len();
        vec![Self::Write(
            format!("HTTP/1.1 {status} X\r\n{headers}content-length: {length}\r\n\r\n{body}").into(),
        )]
    }

    /// The head of a stream of events.
    pub fn events_head() -> Self {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        Self::Write(head.into())
    }

    /// One chunk.
    pub fn chunk(text: &str) -> Self {
        Self::Write(format!("{:x}\r\n{text}\r\n", text.len()).into())
    }

    /// The end of a chunked body.
    pub fn end() -> Self {
        Self::Write(b"0\r\n\r\n".to_vec())
    }

    /// A whole stream of these texts.
    pub fn stream(texts: &[&str]) -> Vec<Self> {
        let mut acts = vec![Self::events_head()];
        acts.extend(texts.iter().map(|text| Self::chunk(&super::event(text))));
        acts.extend([Self::chunk("data: [DONE]\n\n"), Self::end()]);
        acts
    }
}

type Script = Arc<dyn Fn(&Recorded) -> Vec<Act> + Send + Sync>;

struct Shared {
    instance: Mutex<String>,
    state: Mutex<String>,
    models: Mutex<Vec<String>>,
    is_vllm: AtomicBool,
    is_stopped: watch::Sender<bool>,
    running_max: AtomicUsize,
    script: Mutex<Script>,
    recorded: Mutex<Vec<Recorded>>,
    requests: AtomicUsize,
    probes: AtomicUsize,
    connections: AtomicUsize,
    closed_by_peer: AtomicUsize,
}

/// A scripted replica. Dropped, it dies like a killed process: everything is cut.
pub struct Stub {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
    serving: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Stub {
    /// A ready replica of model `m` that answers as `script` says.
    pub async fn start(script: impl Fn(&Recorded) -> Vec<Act> + Send + Sync + 'static) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), script).await
    }

    /// The same at a given address, which may just have been left by another.
    pub async fn start_at(
        address: SocketAddr,
        script: impl Fn(&Recorded) -> Vec<Act> + Send + Sync + 'static,
    ) -> Self {
        Self::start_as(address, &["m"], script).await
    }

    /// The same with these models from its first answer on.
    pub async fn start_as(
        address: SocketAddr,
        models: &[&str],
        script: impl Fn(&Recorded) -> Vec<Act> + Send + Sync + 'static,
    ) -> Self {
        // Whoever had the address before may take a moment to let go of it.
        let began = std::time::Instant::now();
        let listener = loop {
            match TcpListener::bind(address).await {
                Ok(listener) => break listener,
                Err(error) => assert!(began.elapsed() < super::PATIENCE, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            instance: Mutex::new(format!("instance-{}", uuid::Uuid::new_v4())),
            state: Mutex::new("ready".into()),
            models: Mutex::new(models.iter().map(|&model| model.into()).collect()),
            is_vllm: AtomicBool::new(false),
            is_stopped: watch::Sender::new(false),
            running_max: AtomicUsize::new(0),
            script: Mutex::new(Arc::new(script)),
            recorded: Mutex::default(),
            requests: AtomicUsize::new(0),
            probes: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            closed_by_peer: AtomicUsize::new(0),
        });
        let serving = Arc::new(Mutex::new(Vec::new()));
        let accepting = tokio::spawn(accept(listener, shared.clone(), serving.clone()));
        Self { address, shared, accepting, serving }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn name(&self) -> String {
        self.address.to_string()
    }

    /// Requests so far, probes apart.
    pub fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::SeqCst)
    }

    pub fn probes(&self) -> usize {
        self.shared.probes.load(Ordering::SeqCst)
    }

    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Connections that the gateway closed while an answer was awaited or under way.
    pub fn closed_by_peer(&self) -> usize {
        self.shared.closed_by_peer.load(Ordering::SeqCst)
    }

    pub fn recorded(&self) -> Vec<Recorded> {
        self.shared.recorded.lock().unwrap().clone()
    }

    pub fn set_state(&self, state: &str) {
        *self.shared.state.lock().unwrap() = state.into();
    }

    pub fn set_models(&self, models: &[&str]) {
        *self.shared.models.lock().unwrap() = models.iter().map(|&model| model.into()).collect();
    }

    /// From now on it is vLLM.
    pub fn be_vllm(&self) {
        self.shared.is_vllm.store(true, Ordering::SeqCst);
    }

    /// From now on it takes connections and requests and says nothing, as a stopped process does; or moves again.
    pub fn stop(&self, is_stopped: bool) {
        self.shared.is_stopped.send_replace(is_stopped);
    }

    pub fn set_running_max(&self, most: usize) {
        self.shared.running_max.store(most, Ordering::SeqCst);
    }

    pub fn set_script(&self, script: impl Fn(&Recorded) -> Vec<Act> + Send + Sync + 'static) {
        *self.shared.script.lock().unwrap() = Arc::new(script);
    }

    /// Everything is cut, as when the process is killed.
    pub fn kill(&self) {
        self.accepting.abort();
        for task in self.serving.lock().unwrap().drain(..) {
            task.abort();
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, serving: Arc<Mutex<Vec<JoinHandle<()>>>>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        stream.set_nodelay(true).unwrap();
        shared.connections.fetch_add(1, Ordering::SeqCst);
        let task = tokio::spawn(serve(stream, shared.clone()));
        serving.lock().unwrap().push(task);
    }
}

async fn serve(mut stream: TcpStream, shared: Arc<Shared>) {
    let mut buffer = Vec::new();
    while let Some(mut request) = read(&mut stream, &mut buffer).await {
        let mut is_stopped = shared.is_stopped.subscribe();
        is_stopped.wait_for(|is_stopped| !is_stopped).await.expect("its sender is shared");
        let acts = if let Some(answer) = probe(&request, &shared) {
            shared.probes.fetch_add(1, Ordering::SeqCst);
            answer
        } else {
            request.number = shared.requests.fetch_add(1, Ordering::SeqCst);
            shared.recorded.lock().unwrap().push(request.clone());
            let script = shared.script.lock().unwrap().clone();
            script(&request)
        };
        for act in acts {
            match act {
                Act::Write(bytes) => {
                    if stream.write_all(&bytes).await.is_err() {
                        shared.closed_by_peer.fetch_add(1, Ordering::SeqCst);
                        return;
                    }
                }
                Act::Sleep(time) => {
                    tokio::select! {
                        () = tokio::time::sleep(time) => {}
                        () = closed(&mut stream) => {
                            shared.closed_by_peer.fetch_add(1, Ordering::SeqCst);
                            return;
                        }
                    }
                }
                Act::AwaitClose => {
                    closed(&mut stream).await;
                    shared.closed_by_peer.fetch_add(1, Ordering::SeqCst);
                    return;
                }
                Act::Reset => {
                    stream.set_zero_linger().unwrap();
                    return;
                }
                Act::Close => return,
            }
        }
    }
}

async fn closed(stream: &mut TcpStream) {
    let mut byte = [0; 1];
    while matches!(stream.peek(&mut byte).await, Ok(1)) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The answer to a probe; `None` for everything else.
fn probe(request: &Recorded, shared: &Shared) -> Option<Vec<Act>> {
    let is_vllm = shared.is_vllm.load(Ordering::SeqCst);
    match request.target.as_str() {
        "/fleet/events" => Some(Act::json(404, "{}")),
        "/fleet/report" if is_vllm => Some(Act::json(404, "{}")),
        "/fleet/report" => Some(Act::json(200, &report(shared))),
        "/v1/models" if is_vllm => {
            let models = shared.models.lock().unwrap().clone();
            let list: Vec<_> =
                models.iter().map(|id| serde_json::json!({ "id": id, "owned_by": "vllm" })).collect();
            Some(Act::json(200, &serde_json::json!({ "data": list }).to_string()))
        }
        "/health" | "/metrics" | "/api/version" | "/info" if is_vllm => Some(Act::json(200, "")),
        _ => None,
    }
}

fn report(shared: &Shared) -> String {
    serde_json::json!({
        "engine": "flotilla",
        "instance": *shared.instance.lock().unwrap(),
        "models": *shared.models.lock().unwrap(),
        "state": *shared.state.lock().unwrap(),
        "running_max": shared.running_max.load(Ordering::SeqCst),
        "revision": "r1",
        "dtype": "float32",
    })
    .to_string()
}

async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Recorded> {
    let head = loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break buffer.drain(..end + 4).collect::<Vec<_>>();
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8(head).unwrap();
    let mut lines = text.trim_end().split("\r\n");
    let mut first = lines.next().unwrap().split(' ');
    let (method, target) = (first.next().unwrap().to_owned(), first.next().unwrap().to_owned());
    let headers: Vec<(String, String)> = lines
        .map(|line| line.split_once(':').unwrap())
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers
        .iter()
        .find(|(name, _)| name == "content-length")
        .map_or(0, |(_, value)| value.parse().unwrap());
    while buffer.len() < length {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    let body = buffer.drain(..length).collect();
    Some(Recorded { method, target, headers, body, number: 0 })
}
