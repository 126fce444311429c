package throttle

import (
	"math"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// LowestPriority is the largest number that Job.Priority may have.
const LowestPriority = line.Priorities - 1

// unitsForOneLower is how many units of a priority start for each unit of the next lower
// priority while jobs of both wait: nine with a floor of a tenth.
func (o Options) unitsForOneLower() int64 {
	return int64(math.Round((1 - o.PriorityFloor) / o.PriorityFloor))
}
