//! One process's spans of one request: gathered while it runs, put in their places when it is over.

use std::time::{Instant, SystemTime};

use opentelemetry::InstrumentationScope;
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceState};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use crate::place::{Place, Said};
use crate::span::{Kind, Span};

/// Parts of one request that are kept; a request with more has failed in ways that the first ones tell.
const PARTS_MAX: usize = 64;

/// One request's spans.
#[derive(Clone, Debug)]
pub struct Trace {
    place: Place,
    /// The span above, in another process.
    parent: Option<SpanId>,
    parts: Vec<Span>,
}

impl Trace {
    /// Goes on with the trace that a `traceparent` header names, or begins one. `None` when whoever asks keeps none
    /// of it: its header passes on as it is.
    pub fn begin(traceparent: Option<&str>) -> Option<Self> {
        let (place, parent) = match Said::read(traceparent) {
            Said::Unsampled => return None,
            Said::Nothing => (Place::first(), None),
            Said::Parent(above) => (above.another(), Some(above.span)),
        };
        Some(Self { place, parent, parts: Vec::new() })
    }

    /// A place below the request's own span.
    pub fn place(&self) -> Place {
        self.place.another()
    }

    /// Keeps one part of the request.
    pub fn add(&mut self, part: Span) {
        if self.parts.len() < PARTS_MAX {
            self.parts.push(part);
        }
    }

    /// All spans in their places, `request` above the others. Clocks are read once, so that spans lie within each
    /// other as their times do.
    pub(crate) fn spans(&self, request: &Span, scope: &InstrumentationScope) -> Vec<SpanData> {
        let now = (Instant::now(), SystemTime::now());
        let wall = |time: Instant| now.1 - now.0.saturating_duration_since(time);
        let data = |span: &Span, place: Place, parent: Option<SpanId>, is_remote| SpanData {
            span_context: SpanContext::new(
                place.trace,
                place.span,
                TraceFlags::SAMPLED,
                false,
                TraceState::default(),
            ),
            parent_span_id: parent.unwrap_or(SpanId::INVALID),
            parent_span_is_remote: is_remote,
            span_kind: kind(span.kind),
            name: span.name.clone(),
            start_time: wall(span.began),
            end_time: wall(span.ended),
            attributes: span.attributes.clone(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: if span.is_failed { Status::error("") } else { Status::Unset },
            instrumentation_scope: scope.clone(),
        };
        let above = data(request, self.place, self.parent, self.parent.is_some());
        let below = self.parts.iter().map(|part| {
            let place = part.place.unwrap_or_else(|| self.place());
            data(part, place, Some(self.place.span), false)
        });
        std::iter::once(above).chain(below).collect()
    }
}

fn kind(kind: Kind) -> SpanKind {
    match kind {
        Kind::Server => SpanKind::Server,
        Kind::Client => SpanKind::Client,
        Kind::Part => SpanKind::Internal,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn spans(traceparent: Option<&str>) -> Vec<SpanData> {
        let began = Instant::now().checked_sub(Duration::from_millis(10)).unwrap();
        let ms = |ms: u64| began + Duration::from_millis(ms);
        let mut trace = Trace::begin(traceparent).unwrap();
        let place = trace.place();
        trace.add(Span::new("queue", ms(1), ms(2)));
        trace.add(
            Span::new("attempt", ms(2), ms(2)).of(Kind::Client).at(place).until(ms(5)).failed(Some("reset")),
        );
        let request = Span::new("chat m", ms(0), ms(9)).of(Kind::Server).with("k", 1);
        trace.spans(&request, &InstrumentationScope::builder("test").build())
    }

    #[test]
    fn parts_stand_below_their_request_and_within_it() {
        let spans = spans(None);
        let [request, queue, attempt] = &spans[..] else { panic!("{spans:?}") };
        assert_eq!(request.parent_span_id, SpanId::INVALID);
        for part in [queue, attempt] {
            assert_eq!(part.parent_span_id, request.span_context.span_id());
            assert_eq!(part.span_context.trace_id(), request.span_context.trace_id());
            assert!(part.start_time >= request.start_time && part.end_time <= request.end_time);
        }
        let length = |span: &SpanData| span.end_time.duration_since(span.start_time).unwrap().as_millis();
        assert_eq!((length(request), length(queue), length(attempt)), (9, 1, 3));
        assert_eq!((&request.status, &attempt.status), (&Status::Unset, &Status::error("")));
        assert_eq!(attempt.attributes[0].key.as_str(), "error.type");
    }

    #[test]
    fn a_trace_goes_on_below_whoever_asks() {
        let said = Place::first();
        let spans = spans(Some(&said.traceparent()));
        assert!(spans.iter().all(|span| span.span_context.trace_id() == said.trace));
        assert_eq!(spans[0].parent_span_id, said.span);
        assert!(spans[0].parent_span_is_remote);
    }

    #[test]
    fn nothing_is_gathered_where_nothing_is_kept() {
        let unsampled = Place::first().traceparent().replace("-01", "-00");
        assert!(Trace::begin(Some(&unsampled)).is_none());
    }

    #[test]
    fn parts_are_bounded() {
        let mut trace = Trace::begin(None).unwrap();
        let now = Instant::now();
        for _ in 0..2 * PARTS_MAX {
            trace.add(Span::new("attempt", now, now));
        }
        assert_eq!(trace.parts.len(), PARTS_MAX);
    }
}
