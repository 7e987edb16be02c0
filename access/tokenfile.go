package access

import (
	"bytes"
	"crypto/sha256"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/apiserver-lite/apiserver-lite/internal/private"
)

// tokenFile are the users of a file of tokens, by the hashes of the tokens. How long a look-up takes tells about the
// hash of what was sent, and so nothing about a token.
type tokenFile map[[sha256.Size]byte]*user.DefaultInfo

// readTokenFile reads a file in Kubernetes' form.
func readTokenFile(file string, log *slog.Logger) (tokenFile, error) {
	if err := private.Secret(file, log); err != nil {
		return nil, fmt.Errorf("--token-auth-file: %w", err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--token-auth-file: %w", err)
	}
	users, err := parseTokenFile(data)
	if err != nil {
		return nil, fmt.Errorf("--token-auth-file: %s, %w", file, err)
	}
	return users, nil
}

// parseTokenFile reads lines of token, user, uid and, if there are any, groups in one field. The errors say no token.
func parseTokenFile(data []byte) (tokenFile, error) {
	users := tokenFile{}
	records := csv.NewReader(bytes.NewReader(data))
	records.FieldsPerRecord = -1
	for {
		record, err := records.Read()
		if errors.Is(err, io.EOF) {
			return users, nil
		}
		if err != nil {
			return nil, err // it says the line and the column
		}
		line, _ := records.FieldPos(0)
		switch {
		case len(record) < 3:
			return nil, fmt.Errorf("line %d: it has %d of the columns token, user and uid", line, len(record))
		case record[0] == "":
			return nil, fmt.Errorf("line %d: the token is empty", line)
		case record[1] == "":
			return nil, fmt.Errorf("line %d: the user is empty", line)
		}
		hash := sha256.Sum256([]byte(record[0]))
		if users[hash] != nil {
			return nil, fmt.Errorf("line %d: the token is there twice", line)
		}
		u := &user.DefaultInfo{Name: record[1], UID: record[2]}
		if len(record) > 3 && record[3] != "" {
			u.Groups = strings.Split(record[3], ",")
		}
		users[hash] = u
	}
}

// find returns whose the token with a hash is, nil if it's nobody's.
func (f tokenFile) find(hash [sha256.Size]byte) user.Info {
	if u := f[hash]; u != nil {
		return u
	}
	return nil
}
