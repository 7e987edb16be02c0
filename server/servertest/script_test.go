package servertest

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "write the answers that scripts got into their files")

// TestScripts plays testdata/script/*.txtar: the files come in pairs, a request and the answer to it. A request's first
// line is a method and a path, and the rest is its body. An answer's first line is the code. In answers, and in the requests
// after them, $1 is the first resourceVersion that was seen, $2 the second, and so on.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("../../testdata/script/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			p := &play{server: New(t)}
			for i := 0; i+1 < len(a.Files); i += 2 {
				request, answer := a.Files[i], &a.Files[i+1]
				got := p.ask(string(request.Data))
				if *update {
					answer.Data = []byte(got)
				} else if got != string(answer.Data) {
					t.Errorf("%s\n%s\nis answered\n%swant\n%s", request.Name, request.Data, got, answer.Data)
				}
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// play is a script while it's played.
type play struct {
	server   *Server
	versions []string // that were seen, in order
}

var (
	version = regexp.MustCompile(`("resourceVersion":")(\d+)"`)
	chance  = regexp.MustCompile(`("(?:uid|creationTimestamp)":")[^"]*"`) // what no two plays have in common
	number  = regexp.MustCompile(`\$\d+`)
)

// ask sends a request of a script, and returns the answer as scripts have it.
func (p *play) ask(request string) string {
	line, body, _ := strings.Cut(number.ReplaceAllStringFunc(request, p.versionOf), "\n")
	method, path, _ := strings.Cut(line, " ")
	var header []string
	if method != http.MethodGet {
		header = []string{"Content-Type", "application/yaml"}
	}
	response, answer := p.server.Do(method, path, body, header...)
	answer = chance.ReplaceAllString(answer, `$1…"`)
	answer = version.ReplaceAllStringFunc(answer, func(found string) string {
		parts := version.FindStringSubmatch(found)
		return parts[1] + p.nameOf(parts[2]) + `"`
	})
	return fmt.Sprintf("%d\n%s\n", response.StatusCode, strings.TrimSpace(answer))
}

// versionOf returns the version that a name such as $1 is for, or the name if there is none.
func (p *play) versionOf(name string) string {
	i, err := strconv.Atoi(name[1:])
	if err != nil || i < 1 || i > len(p.versions) {
		return name
	}
	return p.versions[i-1]
}

func (p *play) nameOf(version string) string {
	for i, v := range p.versions {
		if v == version {
			return fmt.Sprintf("$%d", i+1)
		}
	}
	p.versions = append(p.versions, version)
	return fmt.Sprintf("$%d", len(p.versions))
}
