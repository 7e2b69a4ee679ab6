//! The date and time that templates may ask for, in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Python's `strftime` for a time in seconds since 1970. Directives it does not know stay as they are.
pub fn strftime(format: &str, seconds: u64) -> String {
    let moment = Moment::of(seconds);
    let mut text = String::new();
    let mut letters = format.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            text.push(letter);
            continue;
        }
        let plain = letters.next_if_eq(&'-').is_some();
        match letters.next() {
            Some(directive) => match moment.directive(directive) {
                Some(part) if plain => text.push_str(part.trim_start_matches(['0', ' '])),
                Some(part) => text.push_str(&part),
                None => text.extend(['%', directive]),
            },
            None => text.push('%'),
        }
    }
    text
}

struct Moment {
    year: u64,
    month: u64,
    day: u64,
    /// 1 for the first of January.
    day_of_year: u64,
    /// 0 for Monday.
    weekday: u64,
    second_of_day: u64,
}

impl Moment {
    /// Counts in 400-year eras that begin in March, so that leap days come last.
    fn of(seconds: u64) -> Self {
        let days = seconds / 86_400;
        let shifted = days + 719_468;
        let (era, of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let from_march = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * from_march + 2) / 153;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = era * 400 + year_of_era + u64::from(month <= 2);
        let leap = year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
        let day_of_year = if month <= 2 { from_march - 305 } else { from_march + 60 + u64::from(leap) };
        Self {
            year,
            month,
            day: from_march - (153 * month_from_march + 2) / 5 + 1,
            day_of_year,
            weekday: (days + 3) % 7,
            second_of_day: seconds % 86_400,
        }
    }

    fn directive(&self, letter: char) -> Option<String> {
        let (hour, minute) = (self.second_of_day / 3600, self.second_of_day / 60 % 60);
        let (month, day) = (MONTHS[self.month as usize - 1], DAYS[self.weekday as usize]);
        Some(match letter {
            'Y' => self.year.to_string(),
            'y' => format!("{:02}", self.year % 100),
            'm' => format!("{:02}", self.month),
            'd' => format!("{:02}", self.day),
            'e' => format!("{:2}", self.day),
            'j' => format!("{:03}", self.day_of_year),
            'B' => month.to_owned(),
            'b' | 'h' => month[..3].to_owned(),
            'A' => day.to_owned(),
            'a' => day[..3].to_owned(),
            'H' => format!("{hour:02}"),
            'I' => format!("{:02}", (hour + 11) % 12 + 1),
            'p' => (if hour < 12 { "AM" } else { "PM" }).to_owned(),
            'M' => format!("{minute:02}"),
            'S' => format!("{:02}", self.second_of_day % 60),
            'F' => format!("{:04}-{:02}-{:02}", self.year, self.month, self.day),
            'T' => format!("{hour:02}:{minute:02}:{:02}", self.second_of_day % 60),
            'Z' => "UTC".to_owned(),
            'z' => "+0000".to_owned(),
            '%' => "%".to_owned(),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let all = "%Y-%m-%d %j %a %A %b %B %y %H:%M:%S %I%p %-d %e %% %Q";
        //    seconds        as Python's strftime gives it (but for the unknown directive)
        for (seconds, expected) in [
            (0, "1970-01-01 001 Thu Thursday Jan January 70 00:00:00 12AM 1  1 % %Q"),
            (951_782_400, "2000-02-29 060 Tue Tuesday Feb February 00 00:00:00 12AM 29 29 % %Q"),
            (1_709_251_199, "2024-02-29 060 Thu Thursday Feb February 24 23:59:59 11PM 29 29 % %Q"),
            (1_709_251_200, "2024-03-01 061 Fri Friday Mar March 24 00:00:00 12AM 1  1 % %Q"),
            (4_107_542_399, "2100-02-28 059 Sun Sunday Feb February 00 23:59:59 11PM 28 28 % %Q"),
            (4_107_542_400, "2100-03-01 060 Mon Monday Mar March 00 00:00:00 12AM 1  1 % %Q"),
            (1_767_182_400, "2025-12-31 365 Wed Wednesday Dec December 25 12:00:00 12PM 31 31 % %Q"),
        ] {
            assert_eq!(strftime(all, seconds), expected);
        }
    }
}
