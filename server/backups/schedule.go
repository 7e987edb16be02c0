package backups

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// minInterval is the shortest interval: names have seconds.
const minInterval = time.Second

// Schedule says when snapshots are taken. The zero value says never.
type Schedule struct {
	text  string
	every time.Duration // 0: cron says when
	cron  cron.Schedule
}

// ParseSchedule reads an interval such as 6h, or five fields as a CronJob has them, or one of their words such as @daily. The fields are in
// the process's time zone, or in the one that CRON_TZ=Europe/Berlin names before them. The empty text says never.
func ParseSchedule(text string) (Schedule, error) {
	s := Schedule{text: text}
	if text == "" {
		return s, nil
	}
	if every, err := time.ParseDuration(text); err == nil {
		s.every = every
		return s, s.check()
	}
	zoned := strings.HasPrefix(text, "TZ=") || strings.HasPrefix(text, "CRON_TZ=")
	if zoned && !strings.Contains(text, " ") { // which the parser doesn't survive
		return Schedule{}, errors.New("there's a time zone, and nothing after it")
	}
	var err error
	if s.cron, err = cron.ParseStandard(text); err != nil {
		return Schedule{}, fmt.Errorf("it is neither an interval such as 6h nor a cron expression such as '0 3 * * *': %w", err)
	}
	if constant, ok := s.cron.(cron.ConstantDelaySchedule); ok {
		s.every = constant.Delay
	}
	return s, s.check()
}

// check refuses what never comes, or too often.
func (s Schedule) check() error {
	switch {
	case s.cron == nil && s.every < minInterval:
		return fmt.Errorf("an interval must be %v or more", minInterval)
	case s.every == 0 && s.cron.Next(time.Now()).IsZero():
		return errors.New("that day never comes")
	}
	return nil
}

// On tells whether there's ever a snapshot.
func (s Schedule) On() bool { return s.text != "" }

// next returns when the next snapshot is due, after the last one was tried at last; zero: never yet. An interval counts from then, whoever
// took it, so that restarts don't put snapshots off.
func (s Schedule) next(last, now time.Time) time.Time {
	switch due := last.Add(s.every); {
	case s.every == 0:
		return s.cron.Next(now)
	case last.IsZero() || due.Before(now):
		return now
	case due.After(now.Add(s.every)): // the clock was ahead
		return now.Add(s.every)
	default:
		return due
	}
}

// Set, String and Type make it a flag's value.
func (s *Schedule) Set(text string) (err error) {
	*s, err = ParseSchedule(text)
	return err
}

// String returns the text that was parsed.
func (s *Schedule) String() string { return s.text }

// Type is what the help calls such a value.
func (s *Schedule) Type() string { return "schedule" }
