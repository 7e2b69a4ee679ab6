//! One piece of a request's time, with what is told of it.

use std::borrow::Cow;
use std::time::Instant;

use opentelemetry::{KeyValue, Value};

use crate::place::Place;

/// Which side of a call a span tells of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Whoever answers.
    Server,
    /// Whoever asks.
    Client,
    /// Neither: a part within one process.
    Part,
}

/// A piece of time. Everything is known when it is made.
#[derive(Clone, Debug)]
pub struct Span {
    pub(crate) name: Cow<'static, str>,
    pub(crate) kind: Kind,
    pub(crate) place: Option<Place>,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
    pub(crate) attributes: Vec<KeyValue>,
    pub(crate) is_failed: bool,
}

impl Span {
    /// A part within one process.
    pub fn new(name: impl Into<Cow<'static, str>>, began: Instant, ended: Instant) -> Self {
        Self {
            name: name.into(),
            kind: Kind::Part,
            place: None,
            began,
            ended: ended.max(began),
            attributes: Vec::new(),
            is_failed: false,
        }
    }

    /// The same as one side of a call.
    #[must_use]
    pub fn of(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// The same at a place that others were told of.
    #[must_use]
    pub fn at(mut self, place: Place) -> Self {
        self.place = Some(place);
        self
    }

    /// The same with an end that was not known before.
    #[must_use]
    pub fn until(mut self, ended: Instant) -> Self {
        self.ended = ended.max(self.began);
        self
    }

    /// Tells one thing more of it.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.attributes.push(KeyValue::new(name, value));
        self
    }

    /// Tells one thing more of it, where it is known.
    #[must_use]
    pub fn with_some(self, name: &'static str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Says that it failed, and of what, where it did.
    #[must_use]
    pub fn failed(mut self, error: Option<&'static str>) -> Self {
        self.is_failed |= error.is_some();
        self.with_some(crate::name::ERROR_TYPE, error)
    }
}
