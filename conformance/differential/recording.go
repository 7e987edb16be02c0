package main

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
func readRecording(dir, scenario string) (lines []recorded, err error) {
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
		var line recorded
		switch err := decoder.Decode(&line); {
		case errors.Is(err, io.EOF):
			return lines, nil
		case err != nil:
			return nil, err
		}
		lines = append(lines, line)
	}
}
