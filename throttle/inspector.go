package throttle

// Inspector looks at a throttle and changes it at run time, and decides for no job. A program that
// has the throttle takes Throttle.Inspector, any other one Attach. Most callers want:
//
//   - Usage and UsageAll, for the units that count under each limit;
//   - Lines and Lanes, for what waits and under which scope key;
//   - Explain and ExplainID, for one job; Forecast, for jobs that do not exist yet;
//   - Pause, SetLimits and SetMode, to change what is in force, and Settings and Changes to see it;
//   - Check and Processes, for whether Redis and the processes are fit.
//
// An Inspector is safe for use by many goroutines and needs no closing.
type Inspector struct{ *setup }
