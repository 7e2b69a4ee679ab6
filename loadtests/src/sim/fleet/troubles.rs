//! Faults as they begin and end.

use gateway_core::fleet::Event as Membership;
use shared::id::ReplicaId;

use super::{Due, Seat, Simulation};
use crate::sim::fault::{Fault, Trouble};
use crate::sim::replica::Replica;

impl Simulation<'_> {
    pub(super) fn begin_trouble(&mut self, index: usize) {
        let Trouble { lasts, replica, fault, .. } = self.troubles[index];
        let now = self.now();
        match fault {
            Fault::Crash => self.crash(replica),
            Fault::Stall => {
                self.seats[replica].stalls += 1;
                self.seats[replica].stalled_since.get_or_insert(now);
            }
            Fault::Slow(factor) => self.slow(replica, factor),
            Fault::Partition => {
                self.seats[replica].partitions += 1;
                self.lose_connections(replica);
            }
            Fault::Silence => {
                self.seats[replica].silences += 1;
                self.lose_news(replica);
            }
            Fault::Drain => {
                self.seats[replica].drains += 1;
                self.gateway.apply(Membership::Drain(ReplicaId(replica as u32)), now);
            }
            Fault::Join => return self.join(replica),
        }
        self.agenda.after(lasts, Due::Heal(index));
    }

    pub(super) fn end_trouble(&mut self, index: usize) {
        let Trouble { replica, fault, .. } = self.troubles[index];
        let now = self.now();
        let seat = &mut self.seats[replica];
        match fault {
            Fault::Crash => {
                seat.crashes -= 1;
                if seat.crashes == 0 {
                    seat.replica = Some(Replica::new(seat.machine, seat.instance));
                }
            }
            Fault::Stall => {
                seat.stalls -= 1;
                if seat.stalls == 0 {
                    seat.stalled_since = None;
                }
                self.wake(replica);
            }
            Fault::Slow(factor) => self.slow(replica, 1.0 / factor),
            Fault::Partition => seat.partitions -= 1,
            Fault::Silence => seat.silences -= 1,
            Fault::Drain => {
                seat.drains -= 1;
                if seat.drains == 0 {
                    self.gateway.apply(Membership::Undrain(ReplicaId(replica as u32)), now);
                }
            }
            Fault::Join => {}
        }
    }

    fn crash(&mut self, number: usize) {
        let seat = &mut self.seats[number];
        seat.crashes += 1;
        seat.instance += 1;
        seat.replica = None;
        self.lose_connections(number);
    }

    /// Everything under way breaks, in the order in which it was sent.
    fn lose_connections(&mut self, number: usize) {
        self.lose_news(number);
        for attempt in self.seats[number].attempts.clone() {
            self.cut(attempt);
        }
    }

    fn lose_news(&mut self, number: usize) {
        self.seats[number].is_unsynced = true;
        self.gateway.lost_news(ReplicaId(number as u32));
    }

    fn slow(&mut self, number: usize, factor: f64) {
        if let Some(replica) = &mut self.seats[number].replica {
            replica.slowness *= factor;
        }
    }

    /// A machine like this one joins.
    fn join(&mut self, like: usize) {
        let now = self.now();
        let number = self.seats.len();
        self.seats.push(Seat::new(self.seats[like].machine));
        self.gateway.join(number, now);
        self.agenda.at(now, Due::Report(number));
    }
}
