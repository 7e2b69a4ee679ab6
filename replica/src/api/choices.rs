//! All choices of one request as one source of deltas, and the request's place in the books.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use replica_core::sequence::{Finish, Request};
use tokio::sync::mpsc;

use super::answer::{Answer, Delta, Start};
use super::app::App;
use super::plan::Plan;
use super::record::{Origin, Record};
use super::served::Served;
use super::stop::StopStrings;
use super::structure::Compiled;
use super::usage::Usage;
use crate::engine::Refusal;
use crate::engine::command::Event;
use crate::error::Error;

/// The choices; dropping them aborts what still runs.
#[derive(Debug)]
pub struct Choices {
    answers: Vec<Answer>,
    /// Where the next look begins, so that no choice starves another.
    next: usize,
    running: usize,
    record: Record,
}

impl Choices {
    /// Hands all sequences to the engine, or none.
    pub fn start(plan: &Plan, origin: Origin, app: &Arc<App>, served: &Arc<Served>) -> Result<Self, Error> {
        let mut record = Record::new(app, origin);
        let answers = (0..plan.choices()).map(|index| start_one(plan, index, &record, served));
        let answers = answers.collect::<Result<Vec<_>, _>>()?;
        record.outcome = "aborted";
        app.metrics
            .count_params(plan.options.n as usize, plan.answer_tokens_max.iter().copied().max().unwrap_or(0));
        Ok(Self { running: answers.len(), answers, next: 0, record })
    }

    /// The next delta of any choice, with the choice's index; `None` when all have ended.
    pub fn poll_delta(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<(usize, Delta), Error>>> {
        if self.running == 0 {
            return Poll::Ready(None);
        }
        for step in 0..self.answers.len() {
            let index = (self.next + step) % self.answers.len();
            match self.answers[index].poll_delta(context) {
                Poll::Ready(Some(Ok(delta))) => {
                    self.next = index + 1;
                    self.note_end(&delta);
                    return Poll::Ready(Some(Ok((index, delta))));
                }
                Poll::Ready(Some(Err(error))) => {
                    self.running = 0;
                    self.record.outcome = "failed";
                    return Poll::Ready(Some(Err(error)));
                }
                Poll::Ready(None) | Poll::Pending => {}
            }
        }
        Poll::Pending
    }

    /// As [`Self::poll_delta`], to await.
    pub async fn delta(&mut self) -> Option<Result<(usize, Delta), Error>> {
        poll_fn(|context| self.poll_delta(context)).await
    }

    /// What has been used so far.
    pub fn usage(&self) -> Usage {
        Usage {
            prompt_tokens: self.answers.iter().map(Answer::prompt_tokens).sum(),
            cached_tokens: self.answers.iter().map(Answer::cached_tokens).sum(),
            answer_tokens: self.answers.iter().map(Answer::answer_tokens).sum(),
            thought_tokens: self.answers.iter().map(Answer::thought_tokens).sum(),
        }
    }

    /// Queue and prefill time of the first choice that has run, for `Server-Timing`.
    pub fn server_timing(&self) -> Option<String> {
        let timing = self.answers.iter().find_map(Answer::timing)?;
        let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
        Some(format!("replica_queue;dur={:.1}, prefill;dur={:.1}", ms(timing.queue), ms(timing.prefill)))
    }

    fn note_end(&mut self, delta: &Delta) {
        self.running -= usize::from(delta.finish.is_some());
        if self.running == 0 {
            self.record.complete(self.usage());
        }
    }
}

impl Drop for Choices {
    fn drop(&mut self) {
        let usage = self.usage();
        let Some(trace) = &mut self.record.origin.trace else { return };
        trace.usage = usage;
        for answer in &self.answers {
            if let Some(timing) = answer.timing() {
                trace.add_sequence(timing, answer.last_token());
            }
        }
    }
}

fn start_one(plan: &Plan, index: usize, record: &Record, served: &Arc<Served>) -> Result<Answer, Error> {
    let id = record.app.next_sequence();
    let Origin { arrival, arrived, deadline, .. } = record.origin;
    let request = plan.request(index, id, arrived, deadline);
    let prompt_tokens = (request.tokens.len() as u32).saturating_sub(request.answered);
    // Room for all it can ever carry, so that the engine never waits for a slow client.
    let (sender, events) = mpsc::channel::<Event>(request.answer_tokens_max as usize + 4);
    if plan.is_complete(index) {
        // Only its end is missing.
        drop(sender.try_send(Event::Finished(Finish::Length)));
    } else {
        submit(plan, record, served, request, sender)?;
    }
    let counts_prompt = index.is_multiple_of(plan.options.n as usize);
    let echo = plan.echo().then(|| plan.echo_of(index, &served.tokenizer));
    let start = Start {
        id,
        events: served.engine.events(events),
        arrival,
        prompt_tokens,
        counts_prompt,
        echo,
        stops: StopStrings::new(plan.options.stop_strings.clone(), plan.options.include_stop),
        content: plan.content.clone(),
        skip_special: plan.options.skip_special,
    };
    let mut answer = Answer::new(start, served.clone(), record.app.metrics.clone());
    answer.resume(plan.answered());
    Ok(answer)
}

fn submit(
    plan: &Plan,
    record: &Record,
    served: &Served,
    request: Request,
    sender: mpsc::Sender<Event>,
) -> Result<(), Error> {
    let mask = plan.structure.as_ref().map(Compiled::mask);
    served
        .engine
        .submit_masked(request, sender, mask)
        .map_err(|refusal| refused(refusal, &record.app, served))
}

/// Why the engine takes a request not.
pub fn refused(refusal: Refusal, app: &App, served: &Served) -> Error {
    match refusal {
        Refusal::Full => Error::queue_full(app.queue_wait(served)),
        Refusal::Draining => Error::unavailable("draining"),
        Refusal::Ended => Error::unavailable("ending"),
    }
}
