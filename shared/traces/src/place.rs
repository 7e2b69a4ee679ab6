//! Where a span stands in its trace, and the header that says so (W3C Trace Context).

use opentelemetry::trace::{SpanId, TraceId};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};

/// A span's id and its trace's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    pub(crate) trace: TraceId,
    pub(crate) span: SpanId,
}

/// What a `traceparent` header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Said {
    /// Nothing that can be read.
    Nothing,
    /// Whoever began this trace keeps none of it.
    Unsampled,
    /// The span that ours is below.
    Parent(Place),
}

impl Place {
    /// The first span of a new trace.
    pub(crate) fn first() -> Self {
        let ids = RandomIdGenerator::default();
        Self { trace: ids.new_trace_id(), span: ids.new_span_id() }
    }

    /// One more span of the same trace.
    #[must_use]
    pub fn another(self) -> Self {
        Self { span: RandomIdGenerator::default().new_span_id(), ..self }
    }

    /// The value of `traceparent` for whoever works below this span.
    pub fn traceparent(self) -> String {
        format!("00-{}-{}-01", self.trace, self.span)
    }
}

impl Said {
    /// Reads a header. A version to come may have more at its end, and begins like this one.
    pub(crate) fn read(traceparent: Option<&str>) -> Self {
        traceparent.and_then(parse).unwrap_or(Self::Nothing)
    }
}

fn parse(text: &str) -> Option<Said> {
    let mut parts = text.trim().split('-');
    let version = hex(parts.next()?, 2)?;
    let trace = TraceId::from(hex(parts.next()?, 32)?);
    let span = SpanId::from(u64::try_from(hex(parts.next()?, 16)?).ok()?);
    let flags = hex(parts.next()?, 2)?;
    let has_more = parts.next().is_some();
    if version == 0xff || (version == 0 && has_more) || trace == TraceId::INVALID || span == SpanId::INVALID {
        return None;
    }
    Some(if flags & 1 == 1 { Said::Parent(Place { trace, span }) } else { Said::Unsampled })
}

/// A number of exactly so many hexadecimal digits, in lower case.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_hex = text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_hex.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_header_is_read_and_written_alike() {
        let Said::Parent(place) = Said::read(Some(SAID)) else { panic!("{SAID}") };
        assert_eq!(place.traceparent(), SAID);
        let below = place.another();
        assert_eq!(below.trace, place.trace);
        assert_ne!(below.span, place.span);
    }

    #[test]
    fn what_is_not_sampled_stays_so() {
        assert_eq!(Said::read(Some(&SAID.replace("-01", "-00"))), Said::Unsampled);
    }

    #[test]
    fn a_header_of_a_later_version_may_be_longer() {
        let later = format!("cc{}-more", &SAID[2..]);
        assert!(matches!(Said::read(Some(&later)), Said::Parent(_)));
    }

    #[test]
    fn what_is_not_well_formed_is_as_if_nothing_was_said() {
        let zeros =
            |from: usize, to: usize| format!("{}{}{}", &SAID[..from], "0".repeat(to - from), &SAID[to..]);
        let texts = [
            String::new(),
            "00-1-2-01".to_owned(),
            SAID.to_uppercase(),
            format!("{SAID}-more"),
            format!("ff{}", &SAID[2..]),
            zeros(3, 35),
            zeros(36, 52),
            SAID.replace("b7ad", "+7ad"),
        ];
        for text in texts {
            assert_eq!(Said::read(Some(&text)), Said::Nothing, "{text}");
        }
        assert_eq!(Said::read(None), Said::Nothing);
    }
}
