package faults

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxDelay is how long a delay may be: as long as a request may take.
const maxDelay = time.Minute

// The distributions of delays.
const (
	fixed       = "fixed"
	uniform     = "uniform"
	normal      = "normal"
	exponential = "exponential"
)

func (d *Delay) validate(at *field.Path) (errs field.ErrorList) {
	if d == nil {
		return nil
	}
	given := map[string]time.Duration{"mean": d.Mean.Duration, "deviation": d.Deviation.Duration, "min": d.Min.Duration, "max": d.Max.Duration}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if value := given[name]; value < 0 || value > maxDelay {
			errs = append(errs, field.Invalid(at.Child(name), value.String(), "must be from 0 to 1m"))
		}
	}
	needs, unused := []string{"mean"}, []string{}
	switch d.Distribution {
	case "", fixed:
		unused = []string{"deviation", "min", "max"}
	case uniform:
		needs, unused = []string{"max"}, []string{"mean", "deviation"}
	case normal:
		needs = []string{"mean", "deviation"}
	case exponential:
		unused = []string{"deviation"}
	default:
		return append(errs, field.NotSupported(at.Child("distribution"), d.Distribution, []string{fixed, uniform, normal, exponential}))
	}
	for _, name := range needs {
		if given[name] == 0 {
			errs = append(errs, field.Required(at.Child(name), "the distribution needs it, as 100ms"))
		}
	}
	for _, name := range unused {
		if given[name] != 0 {
			errs = append(errs, field.Invalid(at.Child(name), given[name].String(), "the distribution has none"))
		}
	}
	if d.Max.Duration != 0 && d.Min.Duration > d.Max.Duration {
		errs = append(errs, field.Invalid(at.Child("min"), d.Min.Duration.String(), "must not be above max"))
	}
	return errs
}

// draw returns how long a request waits.
func (d *Delay) draw(random *rand.Rand) time.Duration {
	mean, most := float64(d.Mean.Duration), maxDelay
	if d.Max.Duration != 0 {
		most = d.Max.Duration
	}
	drawn := mean
	switch d.Distribution {
	case uniform:
		drawn = float64(d.Min.Duration) + random.Float64()*float64(d.Max.Duration-d.Min.Duration)
	case normal:
		drawn = mean + random.NormFloat64()*float64(d.Deviation.Duration)
	case exponential:
		drawn = mean * random.ExpFloat64()
	}
	return time.Duration(min(max(drawn, float64(d.Min.Duration)), float64(most)))
}
