package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// recorded is a line of a recording: a step, and what upstream answered. Where upstream itself answers differently from run to run, the
// other answers are in Or, and each of them is right.
type recorded struct {
	Step    string   `json:"step"`
	Request string   `json:"request"` // its fingerprint
	Answer  answer   `json:"answer"`
	Or      []answer `json:"or,omitempty"`
}

func recordingFile(dir, scenario string) string {
	return filepath.Join(dir, "oracle", scenario+".jsonl.gz")
}

// writeRecording replaces a scenario's recording.
func writeRecording(dir, scenario string, lines []recorded) (err error) {
	file := recordingFile(dir, scenario)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	compressed, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(compressed)
	encoder.SetEscapeHTML(false)
	for _, line := range lines {
		if err := encoder.Encode(line); err != nil {
			return err
		}
	}
	return compressed.Close()
}

// readRecording reads a scenario's recording.
func readRecording(dir, scenario string) ([]recorded, error) {
	return readLines[recorded](dir, scenario)
}

// readLines reads of each line of a recording what L has.
func readLines[L any](dir, scenario string) (lines []L, err error) {
	f, err := os.Open(recordingFile(dir, scenario))
	if err != nil {
		return nil, fmt.Errorf("there's no recording of it, which `make record` makes: %w", err)
	}
	defer f.Close()
	compressed, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bufio.NewReader(compressed))
	decoder.UseNumber()
	for {
		var line L
		switch err := decoder.Decode(&line); {
		case errors.Is(err, io.EOF):
			return lines, nil
		case err != nil:
			return nil, err
		}
		lines = append(lines, line)
	}
}

// record writes what upstream answers.
func (o options) record(ctx context.Context) (err error) {
	runs := 1
	if o.twice {
		runs = 2
	}
	for i := range runs {
		keep := func(sc scenario, answers []answer) error {
			lines := make([]recorded, len(answers))
			for j, a := range answers {
				lines[j] = recorded{Step: sc.steps[j].name, Request: sc.steps[j].fingerprint(), Answer: a}
			}
			if i > 0 {
				before, err := readRecording(o.dir, sc.name)
				if err != nil {
					return err
				}
				lines = merged(before, lines)
			}
			return writeRecording(o.dir, sc.name, lines)
		}
		name := fmt.Sprintf("upstream%d", i)
		if err := o.playFlagged(ctx, name+"-basics", o.bin, upstreamLag, o.picked(basics()), keep); err != nil {
			return err
		}
		all, err := scenarios(o.dir)
		if err != nil {
			return err
		}
		rest := o.picked(all[len(basics()):])
		begun, steps := time.Now(), 0
		for _, sc := range rest {
			steps += len(sc.steps)
		}
		if err := o.playFlagged(ctx, name, o.bin, upstreamLag, rest, keep); err != nil {
			return err
		}
		fmt.Fprintf(o.out, "%d scenarios with %d requests in %v\n", len(rest), steps, time.Since(begun).Round(time.Second))
		if o.only.String() == "" {
			if err := removeOthers(o.dir, all); err != nil {
				return err
			}
		}
	}
	return nil
}

// merged takes the second recording's answers that differ into the first.
func merged(first, second []recorded) []recorded {
	for i := range first {
		if i < len(second) && len(compare(first[i].Answer, second[i].Answer)) > 0 {
			first[i].Or = append(first[i].Or, second[i].Answer)
		}
	}
	return first
}

// removeOthers removes recordings that no scenario asks for.
func removeOthers(dir string, all []scenario) error {
	stale, err := others(dir, all)
	for _, name := range stale {
		err = errors.Join(err, os.Remove(recordingFile(dir, name)))
	}
	return err
}

// others names recordings that no scenario asks for.
func others(dir string, all []scenario) (stale []string, err error) {
	files, err := os.ReadDir(filepath.Join(dir, "oracle"))
	for _, f := range files {
		name := strings.TrimSuffix(f.Name(), ".jsonl.gz")
		if !slices.ContainsFunc(all, func(sc scenario) bool { return sc.name == name }) {
			stale = append(stale, name)
		}
	}
	return stale, err
}

// recorded returns what upstream answered to a scenario; an error if the recording is of other requests.
func (o options) recorded(sc scenario) ([]recorded, error) {
	lines, err := readRecording(o.dir, sc.name)
	if err != nil {
		return nil, err
	}
	for i := range max(len(lines), len(sc.steps)) {
		switch {
		case i >= len(lines):
			return nil, fmt.Errorf("%s has no recording of %s: run `make record ONLY='^%s$'`", sc.name, sc.steps[i].name, sc.name)
		case i >= len(sc.steps):
			return nil, fmt.Errorf("%s: nothing asks for the recording of %s: run `make record ONLY='^%s$'`", sc.name, lines[i].Step, sc.name)
		case lines[i].Request != sc.steps[i].fingerprint() || lines[i].Step != sc.steps[i].name:
			return nil, fmt.Errorf("%s: the recording of %s is of another request than %s: run `make record ONLY='^%s$'`", sc.name, lines[i].Step, sc.steps[i].name, sc.name)
		}
	}
	return lines, nil
}
