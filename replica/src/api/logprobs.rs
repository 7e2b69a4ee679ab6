//! Log-probabilities in the two forms that OpenAI has for them, and a prompt's in vLLM's.

use replica_core::sampler::Sampled;

use super::json;
use super::tokenizer::Tokenizer;

/// Appends chat's form: one object a token.
pub fn write_chat(out: &mut Vec<u8>, tokens: &[Sampled], tokenizer: &Tokenizer) {
    out.extend_from_slice(b"{\"content\":");
    json::write_list(out, tokens, |out, sampled| {
        write_token(out, sampled.token, sampled.logprob.unwrap_or(0.0), tokenizer);
        out.extend_from_slice(b",\"top_logprobs\":");
        json::write_list(out, &sampled.top, |out, (token, logprob)| {
            write_token(out, *token, *logprob, tokenizer);
            out.push(b'}');
        });
        out.push(b'}');
    });
    out.extend_from_slice(b",\"refusal\":null}");
}

/// An object that is left open.
fn write_token(out: &mut Vec<u8>, token: u32, logprob: f32, tokenizer: &Tokenizer) {
    let bytes = tokenizer.token_bytes(token);
    out.extend_from_slice(b"{\"token\":");
    json::write(out, &String::from_utf8_lossy(bytes));
    out.extend_from_slice(b",\"logprob\":");
    json::write_logprob(out, logprob);
    out.extend_from_slice(b",\"bytes\":");
    json::write(out, bytes);
}

/// Appends completions' form: four columns, with `top` of the best. `offset` is where the first token's text begins, in characters; it is
/// moved past the last one's. A token without a log-probability is the first of an echoed prompt.
pub fn write_completion(
    out: &mut Vec<u8>,
    tokens: &[Sampled],
    top: usize,
    tokenizer: &Tokenizer,
    offset: &mut usize,
) {
    let text = |token: u32| text(token, tokenizer);
    out.extend_from_slice(b"{\"tokens\":");
    json::write_list(out, tokens, |out, sampled| json::write(out, &text(sampled.token)));
    out.extend_from_slice(b",\"token_logprobs\":");
    json::write_list(out, tokens, |out, sampled| match sampled.logprob {
        Some(logprob) => json::write_logprob(out, logprob),
        None => json::write(out, &()),
    });
    out.extend_from_slice(b",\"top_logprobs\":");
    json::write_list(out, tokens, |out, sampled| {
        if sampled.logprob.is_none() {
            return json::write(out, &());
        }
        write_map(out, &sampled.top[..top.min(sampled.top.len())], text);
    });
    out.extend_from_slice(b",\"text_offset\":");
    json::write_list(out, tokens, |out, sampled| {
        json::write(out, offset);
        *offset += text(sampled.token).chars().count();
    });
    out.push(b'}');
}

/// Appends a prompt's: for each token its own and `top` of the best, by token id. The first has none.
pub fn write_prompt(out: &mut Vec<u8>, tokens: &[Sampled], top: usize, tokenizer: &Tokenizer) {
    out.extend_from_slice(b"[null");
    for Sampled { token: own, logprob, rank, top: best } in tokens {
        out.extend_from_slice(b",{");
        write_ranked(out, *own, logprob.unwrap_or(0.0), rank.unwrap_or(1), tokenizer);
        for ((token, logprob), rank) in best.iter().take(top).zip(1..).filter(|((token, _), _)| token != own)
        {
            out.push(b',');
            write_ranked(out, *token, *logprob, rank, tokenizer);
        }
        out.push(b'}');
    }
    out.push(b']');
}

fn write_ranked(out: &mut Vec<u8>, token: u32, logprob: f32, rank: u32, tokenizer: &Tokenizer) {
    json::write(out, &token.to_string());
    out.extend_from_slice(b":{\"logprob\":");
    json::write_logprob(out, logprob);
    out.extend_from_slice(b",\"rank\":");
    json::write(out, &rank);
    out.extend_from_slice(b",\"decoded_token\":");
    json::write(out, &text(token, tokenizer));
    out.push(b'}');
}

fn text(token: u32, tokenizer: &Tokenizer) -> String {
    String::from_utf8_lossy(tokenizer.token_bytes(token)).into_owned()
}

/// Text to log-probability. Two tokens may have one text (halves of characters do): the better one is kept.
fn write_map(out: &mut Vec<u8>, top: &[(u32, f32)], text: impl Fn(u32) -> String) {
    let mut seen: Vec<String> = Vec::with_capacity(top.len());
    out.push(b'{');
    for (token, logprob) in top {
        let name = text(*token);
        if seen.contains(&name) {
            continue;
        }
        if !seen.is_empty() {
            out.push(b',');
        }
        json::write(out, &name);
        out.push(b':');
        json::write_logprob(out, *logprob);
        seen.push(name);
    }
    out.push(b'}');
}
