package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
)

// configFlag is the flag that names a file of flags.
const configFlag = "config"

// fromFile gives flags that have no value yet those of a YAML file: a mapping from their names. The error names the line.
func fromFile(set *pflag.FlagSet, path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("--%s: %w", configFlag, err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		return fmt.Errorf("--%s: %s: %w", configFlag, path, err)
	}
	if len(document.Content) == 0 {
		return nil // nothing, or comments alone
	}
	top := document.Content[0]
	if top.Kind != yaml.MappingNode {
		return fmt.Errorf("--%s: %s, line %d: it has to be flags and their values, as 'data-dir: /var/lib/apiserver-lite'", configFlag, path, top.Line)
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(top.Content); i += 2 {
		name, value := top.Content[i], top.Content[i+1]
		flag := set.Lookup(name.Value)
		switch {
		case flag == nil || name.Value == configFlag:
			err = fmt.Errorf("there is no flag --%s that a file may set", name.Value)
		case seen[name.Value]:
			err = fmt.Errorf("%s is there twice", name.Value)
		case flag.Changed: // on the command line or in the environment
		default:
			err = fromNode(set, flag, value)
		}
		if err != nil {
			return fmt.Errorf("--%s: %s, line %d: %w", configFlag, path, name.Line, err)
		}
		seen[name.Value] = true
	}
	return nil
}

// fromNode gives a flag a value of the file: a text, number or truth, or a list of those where the flag takes several.
func fromNode(set *pflag.FlagSet, flag *pflag.Flag, value *yaml.Node) error {
	several, list := flag.Value.(pflag.SliceValue)
	switch {
	case value.Kind == yaml.ScalarNode && value.Tag != "!!null":
		return set.Set(flag.Name, value.Value)
	case value.Kind != yaml.SequenceNode || !list:
		return fmt.Errorf("%s has to be one value", flag.Name)
	}
	all := make([]string, len(value.Content))
	for i, one := range value.Content {
		if one.Kind != yaml.ScalarNode || one.Tag == "!!null" {
			return fmt.Errorf("%s: element %d has to be one value", flag.Name, i+1)
		}
		all[i] = one.Value
	}
	flag.Changed = true
	return several.Replace(all)
}

// check says whether a server could start with its settings, without starting it.
func check(s *server.Server, out io.Writer) error {
	if err := s.Check(); err != nil {
		return err
	}
	if !s.Data.Ephemeral && !s.Etcd.On() {
		switch err := etcd.Examine(cmp.Or(s.Data.Dir, server.DefaultDataDir)); {
		case errors.Is(err, etcd.ErrInUse):
			fmt.Fprintln(out, "flags and files can be used;", err)
			return nil
		case err != nil:
			return err
		}
	}
	fmt.Fprintln(out, "flags, files and the data directory can be used")
	return nil
}
