//! Which part of the public port a path belongs to. A path that could be read in two ways belongs to none.

/// A place on the public port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route<'a> {
    /// `/health` and `/ping`: alive.
    Health,
    /// `/ready`: some replica takes work.
    Ready,
    /// `/v1/models`.
    Models,
    /// `/v1/models/{id}`.
    Model(&'a str),
    /// Something replicas answer.
    Api(Api),
    /// Nothing of ours.
    Unknown,
}

/// Which words a request and its answer use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Api {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completions,
    /// `/v1/responses`.
    Responses,
    /// Everything else: passed on, counted and balanced like the rest.
    Other,
}

/// Finds the place of a path, without its query.
pub fn route(path: &str) -> Route<'_> {
    match path {
        "/health" | "/ping" => Route::Health,
        "/ready" => Route::Ready,
        "/v1/models" => Route::Models,
        "/v1/chat/completions" => Route::Api(Api::Chat),
        "/v1/completions" => Route::Api(Api::Completions),
        "/v1/responses" => Route::Api(Api::Responses),
        "/tokenize" | "/detokenize" => Route::Api(Api::Other),
        _ => match path.strip_prefix("/v1/") {
            // Answered here, so an escaped slash in a model's name leads nowhere else.
            Some(rest) if rest.starts_with("models/") && is_plain(&rest.replace("%2F", "/")) => {
                Route::Model(&rest["models/".len()..])
            }
            Some(rest) if is_plain(rest) => Route::Api(Api::Other),
            _ => Route::Unknown,
        },
    }
}

/// No empty or dotted segments, no escapes of dots or slashes, no slash at the end.
fn is_plain(rest: &str) -> bool {
    let lower = rest.to_ascii_lowercase();
    let is_escaped = ["%2e", "%2f", "%5c", "%00", "\\"].iter().any(|escape| lower.contains(escape));
    !is_escaped && rest.split('/').all(|segment| !matches!(segment, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_paths_have_their_place() {
        assert_eq!(route("/v1/chat/completions"), Route::Api(Api::Chat));
        assert_eq!(route("/v1/models/org/name"), Route::Model("org/name"));
        assert_eq!(route("/v1/models/org%2Fname"), Route::Model("org%2Fname"));
        assert_eq!(route("/v1/rerank"), Route::Api(Api::Other));
        assert_eq!(route("/ping"), Route::Health);
    }

    #[test]
    fn a_path_that_can_be_read_in_two_ways_is_unknown() {
        // U108
        for path in [
            "//v1/models",
            "/V1/models",
            "/v1/../metrics",
            "/v1/%2e%2e/metrics",
            "/v1/./x",
            "/v1//x",
            "/v1/x/",
            "/v1/",
            "/v1",
            "/health/",
            "/metrics",
            "/fleet",
            "/v1/a%2fb",
            "/",
            "",
            "*",
        ] {
            assert_eq!(route(path), Route::Unknown, "{path}");
        }
    }
}
